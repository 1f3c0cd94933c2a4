"""Promise: doctor finds what is there and says what to do about the rest; bench measures and judges; profile needs a GPU."""

import os

import pytest
from cli.command import Command


def findings(done):
    return {finding["part"]: finding for finding in done.json["findings"]}


def test_doctor_finds_the_compilers_that_build_needs(kbundle):
    done = kbundle("doctor", "--json")
    found = findings(done)
    assert {"nvrtc", "nvfatbin", "nvcc", "host compiler", "kernel headers", "CPU", "NVIDIA driver", "Python",
            "JAX"} <= set(found)
    assert found["CPU"]["version"].startswith("x86-64-v")
    assert found["host compiler"]["found"] and os.access(found["host compiler"]["where"], os.X_OK)
    ready = all(f["found"] for f in found.values() if f["required"])
    assert done.json["can_build"] is ready and done.code == (0 if ready else 3)


def test_doctor_without_a_compiler_is_exit_code_3_and_says_what_to_do(kbundle, tmp_path):
    done = kbundle("doctor", env={"KBUNDLE_CXX": str(tmp_path / "none")})
    assert done.code == 3
    assert "missing" in done.out and "KBUNDLE_CXX" in done.out and "install" in done.out


def test_doctor_without_a_toolkit_is_exit_code_3_and_names_the_folder_it_looked_in(kbundle, tmp_path):
    done = kbundle("doctor", env={"KBUNDLE_CUDA_ROOT": str(tmp_path / "no-cuda")})
    assert done.code == 3 and "no-cuda" in done.out and "KBUNDLE_CUDA_ROOT" in done.out


def test_doctor_names_the_version_of_cudnn_or_how_to_get_it(kbundle, tmp_path):
    found = findings(kbundle("doctor", "--json"))["cuDNN"]
    assert found["version"].startswith("9.") if found["found"] else "nvidia-cudnn-cu13" in found["advice"]
    (tmp_path / "libcudnn.so.9").touch()
    found = findings(kbundle("doctor", "--json", env={"KBUNDLE_CUDNN": str(tmp_path / "libcudnn.so.9")}))["cuDNN"]
    assert not found["found"] and not found["required"] and "KBUNDLE_CUDNN" in found["advice"]


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


def test_no_row_of_the_doctor_is_found_and_advised_at_once(kbundle):
    for finding in findings(kbundle("doctor", "--json")).values():
        assert finding["found"] != bool(finding["advice"]), finding


@pytest.fixture(scope="module")
def bench(command, bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    return Command(command, folder, folder)("bench", bundle, "--rounds", "5", "--json")


def test_bench_gives_every_row_a_value_or_a_reason(bench):
    assert bench.code == 0
    rows = {row["name"]: row for row in bench.json["rows"]}
    for name in ("open and verify, this bundle", "open and verify, 10,000 variants", "1,000 selections",
                 "resident before the first load", "blob read, base frame", "host plan, made from the file",
                 "host launch beyond the bare call", "file to ready function, base frame",
                 "file to ready function, delta with cold base", "GPU launch beyond the bare call"):
        row = rows[name]
        assert (row["value"] is not None) != bool(row.get("skipped")), row
        if row["value"] is not None and row["bar"] is not None:
            assert row["pass"] is (row["value"] <= row["bar"])
    assert rows["open and verify, 10,000 variants"]["value"] > rows["open and verify, this bundle"]["value"] > 0


def test_bench_without_a_driver_says_so(bench):
    if not os.path.exists("/proc/driver/nvidia/version"):
        skipped = {row["name"]: row["skipped"] for row in bench.json["rows"] if row.get("skipped")}
        assert skipped["file to ready function, base frame"] == "no NVIDIA driver"


def test_bench_prints_the_estimator_and_fails_a_check_only_by_a_missed_bar(kbundle, bundle):
    done = kbundle("bench", bundle, "--rounds", "3", "--check")
    assert "median of 3 interleaved rounds" in done.out
    assert done.code == (1 if "FAIL" in done.out else 0)


def test_bench_leaves_no_file_behind(kbundle, bundle, tmp_path):
    (tmp_path / "tmp").mkdir()
    kbundle("bench", bundle, "--rounds", "3", env={"TMPDIR": str(tmp_path / "tmp")})
    assert list((tmp_path / "tmp").iterdir()) == []


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
