"""Promise: doctor tries what is there, from any folder, says which bundles Python finds, what to do about the rest, and last the one thing to do
next; profile needs a GPU."""

import os
import pathlib
import sys

import pytest
from cli.command import Command

ROOT = pathlib.Path(__file__).resolve().parents[2]


def findings(done):
    return {finding["part"]: finding for finding in done.json["findings"]}


@pytest.fixture(scope="module")
def healthy(command, tmp_path_factory):
    """What doctor says of this machine for kernels/, asked in a folder that is nobody's."""
    folder = tmp_path_factory.mktemp("healthy")
    return Command(command, folder, folder)("doctor", ROOT / "kernels", "--json", cwd=folder)


def test_doctor_tries_all_that_a_build_of_kernels_needs_from_any_folder(healthy):
    found = findings(healthy)
    assert {"nvrtc", "ptxas", "nvfatbin", "nvcc", "cuDNN", "Triton", "Warp", "host compiler", "kernel headers", "CPU",
            "NVIDIA driver", "Python", "JAX"} <= set(found)
    assert found["CPU"]["version"].startswith("x86-64-v")
    assert found["host compiler"]["found"] and os.access(found["host compiler"]["where"], os.X_OK)
    assert {f["part"] for f in found.values() if f["required"]} >= {"nvrtc", "nvfatbin", "host compiler", "Triton", "cuDNN"}
    broken = {part: f["advice"] for part, f in found.items() if f["state"] != "ok" and f["needed_by"] and (f["required"] or f["state"] == "broken")}
    assert not broken and healthy.json["can_build"] and healthy.code == 0
    assert found["cuDNN"]["version"].startswith("9.")


def test_no_row_of_the_doctor_is_found_and_advised_at_once(healthy):
    for finding in findings(healthy).values():
        assert finding["found"] != bool(finding["advice"]), finding


def test_the_checkouts_own_triton_is_found_from_any_folder(healthy):
    assert findings(healthy)["Triton"]["where"] == str(ROOT / ".venv/bin/python")


def test_doctor_without_a_compiler_says_no_and_what_to_do(kbundle, tmp_path):
    done = kbundle("doctor", env={"KBUNDLE_CXX": str(tmp_path / "none")})
    assert done.code == 1
    assert "missing" in done.out and "KBUNDLE_CXX" in done.out and "install" in done.out


def next_of(done):
    """The last line, which --json has as "next"."""
    line = done.out.splitlines()[-1]
    assert line.startswith("next: "), done.out
    return line.removeprefix("next: ")


def test_the_last_line_is_the_one_thing_to_do(kbundle, tmp_path):
    wrong = {"KBUNDLE_CXX": str(tmp_path / "none")}
    stops = next_of(kbundle("doctor", env=wrong))
    assert stops.startswith("host compiler: ") and "KBUNDLE_CXX" in stops
    assert kbundle("doctor", "--json", env=wrong).json["next"] == stops
    library = tmp_path / "libcudnn.so.9"
    library.touch()
    assert next_of(kbundle("doctor", env={"KBUNDLE_CUDNN": str(library)})).startswith("cuDNN: ")


def bare_python(tmp_path):
    """The environment of a Python without packages."""
    python = tmp_path / "bare_python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")
    python.chmod(0o755)
    return {"KBUNDLE_PYTHON": str(python)}


def test_where_all_is_well_it_is_the_work_itself(kbundle, tmp_path):
    library = ROOT / "tests/python/library"
    assert next_of(kbundle("doctor", library, env=bare_python(tmp_path))) == f"kbundle build {library} -o out.kb"
    assert next_of(kbundle("doctor", env=bare_python(tmp_path))).startswith("kbundle new mylib")


@pytest.fixture
def python_with(tmp_path):
    """A Python that has kbundle, and finds these files in KBUNDLE_PATH."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nPYTHONPATH={ROOT}/ffi/python KBUNDLE_LIBRARY={os.environ['KBUNDLE_LIBRARY']} exec {sys.executable} \"$@\"\n")
    python.chmod(0o755)
    return lambda *files: {"KBUNDLE_PYTHON": str(python), "KBUNDLE_PATH": ":".join(map(str, files))}


def test_doctor_lists_the_bundles_that_python_finds(kbundle, bundle, python_with, tmp_path):
    done = kbundle("doctor", "--json", env=python_with(bundle))
    found = findings(done)
    assert found["Python kbundle"]["state"] == "ok" and found["Python kbundle"]["where"].endswith("libkbundle.so")
    row = found["bundle of $KBUNDLE_PATH"]
    assert (row["state"], row["where"]) == ("ok", str(bundle)) and row["version"].endswith(" ops")
    (tmp_path / "damaged.kb").write_bytes(b"no bundle")
    done = kbundle("doctor", "--json", env=python_with(tmp_path / "damaged.kb"))
    row = findings(done)["bundle of $KBUNDLE_PATH"]
    assert row["state"] == "broken" and "DATA_LOSS" in row["advice"] and done.code == 0, "a build needs no bundle"
    assert done.json["next"].startswith("bundle of $KBUNDLE_PATH: ") and "damaged.kb" in done.json["next"]


def test_a_python_without_kbundle_is_told_what_brings_it(kbundle, tmp_path):
    row = findings(kbundle("doctor", "--json", env=bare_python(tmp_path)))["Python kbundle"]
    assert row["state"] == "absent" and "pip install kbundle" in row["advice"]


def test_doctor_without_a_toolkit_says_no_and_names_the_folder_it_looked_in(kbundle, tmp_path):
    done = kbundle("doctor", env={"KBUNDLE_CUDA_ROOT": str(tmp_path / "no-cuda")})
    assert done.code == 1 and "no-cuda" in done.out and "KBUNDLE_CUDA_ROOT" in done.out


def test_what_is_there_and_does_not_work_is_broken_whatever_needs_it(kbundle, tmp_path):
    library = tmp_path / "libcudnn.so.9"
    library.touch()
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 12.2 && exit 0\necho out of order; exit 1\n")
    compiler.chmod(0o755)
    done = kbundle("doctor", "--json", env={"KBUNDLE_CUDNN": str(library), "KBUNDLE_CXX": str(compiler)})
    found = findings(done)
    assert done.code == 1 and not done.json["can_build"]
    assert found["cuDNN"]["state"] == "broken" and not found["cuDNN"]["required"] and str(library) in found["cuDNN"]["advice"]
    assert found["host compiler"]["state"] == "broken" and "out of order" in found["host compiler"]["advice"]


def test_a_python_without_triton_is_absent_and_missing_only_for_those_who_need_it(kbundle, tmp_path):
    env = bare_python(tmp_path)
    done = kbundle("doctor", "--json", env=env)
    assert done.code == 0 and findings(done)["Triton"]["state"] == "absent"
    done = kbundle("doctor", ROOT / "kernels/permutation", "--json", env=env)
    triton = findings(done)["Triton"]
    assert done.code == 1 and triton["state"] == "missing" and env["KBUNDLE_PYTHON"] in triton["advice"] and "--python" in triton["advice"]


def test_doctor_sees_the_cpu_level_that_the_user_sets(kbundle):
    done = kbundle("doctor", "--json", env={"KBUNDLE_CPU_ISA": "x86-64-v2"})
    assert findings(done)["CPU"]["version"] == "x86-64-v2"


def test_doctor_asks_the_active_environment_for_jax(kbundle, tmp_path):
    fake = tmp_path / "venv/bin"
    fake.mkdir(parents=True)
    (fake / "python").write_text("#!/bin/sh\ncase \"$2\" in *version_info*) echo 3.11.7;; *) echo 0.9.1;; esac\n")
    (fake / "python").chmod(0o755)
    found = findings(kbundle("doctor", "--json", env={"VIRTUAL_ENV": str(tmp_path / "venv")}))
    assert (found["Python"]["version"], found["JAX"]["version"]) == ("3.11.7", "0.9.1")


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/version"), reason="there is an NVIDIA driver here")
def test_profile_without_a_gpu_is_exit_code_3_with_advice(kbundle, tmp_path):
    library = tmp_path / "libcudnn.so.9"
    library.touch()
    done = kbundle("profile", "-o", tmp_path / "gpu.json", env={"KBUNDLE_CUDNN": str(library)})
    assert done.code == 3 and done.out == ""
    assert "live GPU" in done.err and "driver" in done.err
    assert not (tmp_path / "gpu.json").exists()


def test_profile_without_cudnn_is_exit_code_3_with_advice(kbundle, tmp_path):
    done = kbundle("profile", "-o", "-", env={"KBUNDLE_CUDNN": str(tmp_path / "none.so")})
    assert done.code == 3 and done.out == ""
    assert "none.so" in done.err and "nvidia-cudnn-cu13" in done.err and "KBUNDLE_CUDNN" in done.err
