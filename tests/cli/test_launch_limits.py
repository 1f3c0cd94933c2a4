"""Promise: what the loader refuses to launch is refused where no device is: build at the manifest's line, verify and explain by the loader's own
check."""

import re

import pytest
from cli.tiny import CUDA_MANIFEST, MANIFEST, write_cuda, write_tiny

UNLISTED = CUDA_MANIFEST.replace('problems  = [{ T = "f32", x = [1000] }]\n', "").replace("portable = true\n", "")
BLOCK = 'block = ["THREADS"]'


def build_gpu(kbundle, folder, manifest):
    path = write_cuda(folder / "gpu")
    path.write_text(manifest)
    return kbundle("build", path, "-o", folder / "gpu.kb", "--target", "sm_90a")


@pytest.mark.parametrize("before, after, words", [
    (BLOCK, 'block = ["N - 1000"]', "'N - 1000' is a block of no threads"),
    (BLOCK, 'block = ["0"]', "'0' is a block of no threads"),
    (BLOCK, BLOCK + ', cluster = ["3"]', "do not divide the grid's"),
    (BLOCK, BLOCK + ', shared = "N - 1001"', "'N - 1001' is -1, which is negative"),
    (BLOCK, BLOCK + ', shared = "N / (N - 1000)"', "is no number: it divides by zero"),
])
def test_a_launch_of_a_listed_problem_that_no_gpu_takes_is_an_error_of_the_build(kbundle, tmp_path, before, after, words):
    manifest = CUDA_MANIFEST.replace("portable = true\n", "").replace(before, after)
    done = build_gpu(kbundle, tmp_path, manifest)
    assert done.code == 1 and re.search(r"gpu\.toml:\d+:\d+: error: ", done.err) and words in done.err, done.err


@pytest.mark.parametrize("range_, words", [
    ("N / 0", "'N / 0' is no number: it divides by zero"), ("N * 9223372036854775807", "overflows 64 bits"),
    ("0 - N", "'0 - N' is -100, which is negative"),
])
def test_a_range_that_is_no_number_is_an_error_of_the_build(kbundle, tmp_path, range_, words):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.write_text(MANIFEST.replace('range = "N"', f'range = "{range_}"'))
    done = kbundle.build(tiny, tmp_path / "x.kb")
    assert done.code == 1 and re.search(r"tiny\.toml:\d+:\d+: error: ", done.err) and words in done.err, done.err


def test_what_nothing_is_launched_for_is_no_error(kbundle, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.write_text(MANIFEST.replace("x = [100]", "x = [0]").replace('range = "N"', 'range = "100 / N"'))
    done = kbundle.build(tiny, tmp_path / "x.kb")
    assert done.code == 0, done.err
    done = build_gpu(kbundle, tmp_path, CUDA_MANIFEST.replace("x = [1000]", "x = [0]").replace(BLOCK, 'block = ["min(N, THREADS)"]'))
    assert done.code == 0, done.err


@pytest.mark.parametrize("after, size, words", [
    ('block = ["min(N, THREADS) - 7"]', 7, "block.x is 0, must be at least 1"),
    (BLOCK + ', cluster = ["3"]', 1000, "not a multiple of the cluster's 3"),
    (BLOCK, 549755813889 * 2, "at most 2147483647"),
])
def test_verify_and_explain_know_the_limits_of_gpus(kbundle, tmp_path, after, size, words):
    assert build_gpu(kbundle, tmp_path, UNLISTED.replace(BLOCK, after)).code == 0
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"op": "gpu.twice", "operands": {"x": "f32[%d]"}}\n' % size)
    done = kbundle("verify", tmp_path / "gpu.kb", "--target", "sm_90a", "--problems", asked, "--json")
    assert done.code == 1 and words in done.out, done.out
    done = kbundle("explain", tmp_path / "gpu.kb", "gpu.twice", "--operand", f"x=f32[{size}]", "--target", "sm_90a")
    assert done.code == 1 and words in done.err, done.out + done.err
