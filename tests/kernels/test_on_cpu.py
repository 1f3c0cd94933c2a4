"""Promise: kernels for GPUs compute what they should where there is none: their C++, run on the CPU by simt/machine.h, and the
arithmetic beside them, are held to float64 by *_test.cc. Each is a program of GoogleTest, compiled anew.

Kernels include headers of their own folder. They are copied without the one that holds a GPU's instructions, so that
simt/ptx.cuh takes its place.
"""

import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = HERE.parents[1] / "kernels"
HEADERS = {"attention": "decode.cuh decode_block.cuh decode_combine.cuh decode_fp8.cuh decode_load.cuh decode_split.h mask.cuh score.cuh tile.cuh"}
TESTS = sorted(HERE.glob("*_test.cc"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("kernels")
    for family, headers in HEADERS.items():
        (made / family).mkdir()
        for header in headers.split():
            shutil.copy(KERNELS / family / header, made / family)
    return made


@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.stem)
def test_kernels_on_the_cpu(test, folder):
    program = folder / test.stem
    machine = HERE / "simt/machine.cc"
    subprocess.run(["c++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{HERE.parent}", "-isystem", folder, "-isystem",
                    HERE / "simt", test, machine, "-lgtest", "-lgtest_main", "-o", program], check=True)
    ran = subprocess.run([program, "--gtest_brief=1"], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-5000:]
