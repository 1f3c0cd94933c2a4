"""Promise: one bundle serves x86-64 and 64-bit Arm. Host kernels are compiled for armv8-a by a cross compiler, each loader takes its own and
never the other's, and the library, compiled for Arm and run by qemu, computes what the one for x86-64 does.

The library for Arm is made by scripts/aarch64; without it, a cross compiler or qemu, what needs them is skipped by name."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = ROOT / "build/aarch64"
SYSROOT = pathlib.Path("/usr/aarch64-linux-gnu")
SOURCES = [ROOT / "tests/downstream/library", ROOT / "kernels/softmax"]
F32, F16, I32 = 12, 10, 7  # dtypes of kb_tensor
NUMPY = {F32: np.float32, F16: np.float16, I32: np.int32}

pytestmark = pytest.mark.skipif(shutil.which("aarch64-linux-gnu-g++") is None,
                                reason="no aarch64-linux-gnu-g++ here: scripts/setup --aarch64 installs it")


def run(*words, code=0, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=900, **more)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def bundle(command, tmp_path_factory):
    """For both kinds of CPU."""
    path = tmp_path_factory.mktemp("both") / "both.kb"
    run(command, "build", *SOURCES, "-o", path, "--target", "x86-64-v2,armv8-a", "--provider", "host")
    return path


@pytest.fixture(scope="module")
def small(command, tmp_path_factory):
    """{target: a bundle for it alone}."""
    folder, made = tmp_path_factory.mktemp("one"), {}
    for target in ("x86-64-v2", "armv8-a"):
        made[target] = folder / f"{target}.kb"
        run(command, "build", SOURCES[0], "-o", made[target], "--target", target)
    return made


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """{architecture: what runs run_op there}."""
    folder, made = tmp_path_factory.mktemp("programs"), {}
    for architecture, compiler, library in (("x86-64", "cc", ROOT / "build/release"), ("armv8-a", "aarch64-linux-gnu-gcc", LIBRARY)):
        if architecture == "armv8-a":
            if not (library / "libkbundle.so").exists():
                pytest.skip("no build/aarch64/libkbundle.so: run scripts/aarch64, which makes it and runs this test")
            if shutil.which("qemu-aarch64") is None:
                pytest.skip("no qemu-aarch64 here: scripts/setup --aarch64 installs it")
        program = folder / architecture
        run(compiler, "-O1", "-Wall", HERE / "run_op.c", "-I", ROOT / "ffi/c/include", library / "libkbundle.so", f"-Wl,-rpath,{library}",
            "-o", program)
        made[architecture] = ["qemu-aarch64", "-L", SYSROOT, program] if architecture == "armv8-a" else [program]
    return made


def call(program, bundle, op, folder, operands, **attributes):
    """(variant, results as bytes). operands: arrays, (dtype number, array of codes), or None."""
    folder.mkdir(parents=True)
    words = []
    for index, operand in enumerate(operands):
        if operand is None:
            words.append("-")
            continue
        dtype, array = operand if isinstance(operand, tuple) else ({np.dtype(n): d for d, n in NUMPY.items()}[operand.dtype], operand)
        array.tofile(folder / f"operand{index}")
        words.append(f"{dtype}:{','.join(map(str, array.shape))}")
    given = [f"{name}={value}" for name, value in attributes.items()]
    variant = run(*program, bundle, op, folder, *given, "--", *words).strip()
    return variant, {path.name: path.read_bytes() for path in sorted(folder.glob("result*"))}


def test_code_and_rows_carry_the_architecture(command, bundle):
    described = json.loads(run(command, "inspect", "--json", bundle))
    assert {"x86-64-v2", "armv8-a"} <= set(described["targets"])
    run(command, "verify", bundle)


def test_a_choice_for_the_one_is_never_the_others_code(small, bundle):
    import kbundle
    both = kbundle.open(bundle)
    for target, other in (("x86-64-v2", "armv8-a"), ("armv8-a", "x86-64-v2")):
        said = both.explain("demo.bounds", "f32[4,33]", target=target)
        assert said["chosen"].endswith(f"@{target}")
        assert all(other not in one["id"] for one in said["candidates"] if one["legal"])
        alone = kbundle.open(small[other], f"alone_{other}")
        assert alone.explain("demo.bounds", "f32[4,33]", target=target)["chosen"] is None


def test_without_a_cross_compiler_the_build_says_what_to_install(command, tmp_path):
    environment = dict(os.environ, KBUNDLE_CXX_ARM=str(tmp_path / "none"))
    said = run(command, "build", SOURCES[0], "-o", tmp_path / "x.kb", "--target", "armv8-a", code=3, env=environment)
    assert "install g++-aarch64-linux-gnu" in said
    environment["KBUNDLE_CXX_ARM"] = shutil.which("g++")
    done = subprocess.run([command, "build", str(SOURCES[0]), "-o", str(tmp_path / "x.kb"), "--target", "armv8-a"],
                          env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and not (tmp_path / "x.kb").exists()


CALLS = {
    "softmax": ("softmax.scaled_forward", lambda r: [r.standard_normal((5, 1027)).astype(np.float32)], {"scale": 0.5}, F32),
    "softmax f16": ("softmax.scaled_forward", lambda r: [r.standard_normal((5, 1027)).astype(np.float16)], {"scale": 0.5}, F16),
    "its gradient": ("softmax.scaled_backward", lambda r: [r.standard_normal((3, 515)).astype(np.float32) for _ in range(2)], {"scale": 0.5}, F32),
    "bounds": ("demo.bounds", lambda r: [r.integers(-999, 999, (2, 3, 129), dtype=np.int32)], {}, I32),
    "bounds f32": ("demo.bounds", lambda r: [r.standard_normal((7, 33)).astype(np.float32)], {}, F32),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_compute_the_same(programs, bundle, tmp_path, name):
    op, make, attributes, dtype = CALLS[name]
    operands = make(np.random.default_rng())
    found = {}
    for architecture, program in programs.items():
        variant, found[architecture] = call(program, bundle, op, tmp_path / architecture, operands, **attributes)
        assert f"@{architecture}" in variant
    assert found["x86-64"].keys() == found["armv8-a"].keys() and found["x86-64"]
    for result, ours in found["x86-64"].items():
        one, other = [np.frombuffer(each, NUMPY[dtype]).astype(np.float64) for each in (ours, found["armv8-a"][result])]
        assert one.size and not np.isnan(one).any()
        np.testing.assert_allclose(other, one, rtol=2e-3 if dtype == F16 else 1e-5, atol=1e-6)


def test_a_bundle_for_the_other_is_refused_with_what_it_lacks(programs, small, tmp_path):
    for architecture, other in (("x86-64", "armv8-a"), ("armv8-a", "x86-64-v2")):
        folder = tmp_path / architecture
        folder.mkdir()
        np.zeros((2, 3), np.float32).tofile(folder / "operand0")
        said = run(*programs[architecture], small[other], "demo.bounds", folder, "--", f"{F32}:2,3", code=1)
        assert other in said, said
