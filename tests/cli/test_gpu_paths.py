"""Promise: what the command does with a GPU works up to the driver's door, on machines that have none."""

import json
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent


def test_verify_tells_exact_code_from_portable_code(kbundle, gpu_bundle):
    assert kbundle("verify", gpu_bundle, "--target", "sm_90a").code == 0
    done = kbundle("verify", gpu_bundle, "--target", "sm_100f", "--json")
    assert done.code == 1 and done.json["missing"][0]["op"] == "gpu.twice"


def test_explain_offers_the_portable_variant_where_nothing_is_exact(kbundle, gpu_bundle):
    done = kbundle("explain", gpu_bundle, "gpu.twice", "--operand", "x=f32[100]", "--target", "sm_120f", "--json")
    assert done.code == 0
    assert done.json["choice"] == "portable" and done.json["chosen"].endswith("@portable")


def test_strict_refuses_the_portable_variant(kbundle, gpu_bundle):
    done = kbundle("explain", gpu_bundle, "gpu.twice", "--operand", "x=f32[100]", "--target", "sm_120f", "--strict")
    assert done.code == 1 and "strict" in done.err + done.out


def test_inspect_shows_registers_and_deltas_of_cubins(kbundle, gpu_bundle):
    whole = kbundle("inspect", gpu_bundle, "--json").json
    variants = whole["ops"][0]["variants"]
    assert all(v["registers"] > 0 for v in variants if v["target"].startswith("sm_"))
    deltas = [blob for blob in whole["blobs"] if blob["base"] >= 0]
    assert deltas and all(whole["blobs"][blob["base"]]["base"] == -1 for blob in deltas)


def test_extract_resolves_a_delta_to_a_whole_cubin(kbundle, gpu_bundle, tmp_path):
    whole = kbundle("inspect", gpu_bundle, "--json").json
    deltas = [v["id"] for v in whole["ops"][0]["variants"] if whole["blobs"][v["blob"]]["base"] >= 0]
    done = kbundle("extract", gpu_bundle, deltas[0], "-o", tmp_path / "x.cubin")
    assert done.code == 0 and "cuobjdump" in done.out
    data = (tmp_path / "x.cubin").read_bytes()
    assert data[:4] == b"\x7fELF" and b"twice" in data


def test_doctor_lists_driver_and_gpus(kbundle, driver):
    found = {f["part"]: f for f in kbundle("doctor", "--json", env=driver).json["findings"]}
    assert found["NVIDIA driver"]["version"] == "CUDA 13.0"
    assert (found["GPU 0"]["version"], found["GPU 0"]["where"]) == ("sm_90", "Stand-in, 132 SMs")


def test_tune_on_a_gpu_that_is_not_there_says_which_there_are(kbundle, driver, tmp_path):
    done = kbundle("tune", tmp_path, "--target", "sm_90a", "--device", "0,4", env=driver)
    assert done.code == 3 and "choosing GPU 4: this process sees one, number 0; choose one with --device" in done.err


@pytest.fixture(scope="module")
def cudnn(driver, tmp_path_factory):
    """Environment in which driver and cuDNN are the stand-ins."""
    library = tmp_path_factory.mktemp("cudnn") / "libcudnn.so.9"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "standin_cudnn.c"], check=True)
    return driver | {"KBUNDLE_CUDNN": str(library)}


def test_profile_is_what_cudnn_says_without_the_place_on_the_bus(kbundle, cudnn, tmp_path):
    done = kbundle("profile", "-o", tmp_path / "gpu.json", env=cudnn)
    assert done.code == 0, done.err
    profile = json.loads((tmp_path / "gpu.json").read_text())
    assert profile == {"multiProcessorCount": 132, "cudaDeviceId": 0, "pciDeviceId": 0, "deviceVer": 900,
                       "memoryBusWidth": 65535}
    assert kbundle("profile", "-o", "-", "--json", env=cudnn).json == profile
    again = kbundle("profile", "-o", tmp_path / "gpu.json", "--json", env=cudnn)
    assert again.json == {"ok": True, "output": str(tmp_path / "gpu.json")}


def test_profile_of_a_gpu_that_is_not_there_is_exit_code_3(kbundle, cudnn):
    done = kbundle("profile", "-o", "-", "--device", "5", env=cudnn)
    assert done.code == 3 and "describing GPU 5: this process sees one, number 0; choose one with --device" in done.err


def test_profile_by_another_library_than_cudnn_is_exit_code_3(kbundle, cudnn):
    other = next(pathlib.Path(cudnn["LD_LIBRARY_PATH"]).glob("libcuda.so.1"))
    done = kbundle("profile", "-o", "-", env=cudnn | {"KBUNDLE_CUDNN": str(other)})
    assert done.code == 3 and "lacks the backend API" in done.err
