"""Promise: the demo runs every family right, tells only committed figures of GPUs, and the commands it ends with work as printed."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "build/kernels.kb"
sys.path.insert(0, str(ROOT / "scripts"))

import demo_gpus


@pytest.fixture(scope="module")
def printed(command):
    if not BUNDLE.exists():
        pytest.skip("no build/kernels.kb: kbundle build kernels -o build/kernels.kb")
    env = os.environ | {"PYTHONPATH": str(ROOT / "ffi/python"), "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run([sys.executable, ROOT / "scripts/demo.py", "--seconds", "0.02"], env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_each_row_names_its_variants_error_times_and_ratio(printed):
    for work in ("softmax", "causal softmax", "attention, softcap", "MLP, gelu", "MoE permute, unpermute"):
        row = next(line for line in printed.splitlines() if line.startswith(work + " "))
        error, mine, theirs, ratio, variant = re.search(r"(\S+e[+-]\d+) +([\d.]+) +([\d.]+) +([\d.]+)  (\S.*)$", row).groups()
        assert float(error) < 5e-3 and float(mine) > 0 and float(theirs) > 0 and re.match(r"\w+", variant)
        assert float(ratio) == pytest.approx(float(theirs) / float(mine), rel=0.1, abs=0.02)


def test_the_commands_at_the_end_work_as_printed(printed):
    commands = re.findall(r"^  (build/release/kbundle .*)$", printed, re.M)
    assert len(commands) == 3
    for line in commands:
        ran = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True)
        assert ran.returncode == 0 and ran.stdout, f"{line}\n{ran.stderr}"


def test_what_it_says_of_an_h200_is_in_the_committed_results():
    told, where = demo_gpus.of_results(demo_gpus.RESULTS / "nvidia_h200.json")
    text = demo_gpus.RESULTS.joinpath("nvidia_h200.json").read_text()
    assert "NVIDIA H200" in where and set(told) == {"softmax", "causal softmax", "attention, softcap", "dense, gelu", "permute"}
    for line in told.values():
        rounded = [int(number) for number in re.findall(r"(?:\] |cubed |64 |, \w+(?:\.jit)? )(\d+)\b(?! of)", line)]
        stored = [float(number) for number in re.findall(r"\d+\.\d+", text)]
        assert rounded and all(any(round(number) == found for number in stored) for found in rounded), line


def test_what_no_result_holds_is_left_out(tmp_path):
    (tmp_path / "empty.json").write_text(json.dumps({"sections": {}, "device": "x", "driver": "y", "date": "z"}))
    assert demo_gpus.of_results(tmp_path / "empty.json") == ({}, "x, driver y, z")


def test_what_it_says_of_an_h100_is_that_page_s_table():
    figures, where = demo_gpus.of_h100()
    assert "H100" in where and "by hand" in where and len(figures) == 5
