"""Promise: nvcc compiles under one path wherever a unit is built, but where that is not to be had nothing waits for it for ever."""

import os
import pathlib
import re

import pytest
from cli.tiny import CUDA_MANIFEST, write_cuda


@pytest.fixture
def nvcc(kbundle, tmp_path):
    """A family for nvcc, in a source that no other test has."""
    if not any(f["part"] == "nvcc" and f["state"] == "ok" for f in kbundle("doctor", "--json").json["findings"]):
        pytest.skip("no nvcc")
    path = write_cuda(tmp_path / "gpu")
    manifest = CUDA_MANIFEST.replace("portable = true", 'compiler = "nvcc"').replace("[128, 256, 512]", "[128]")
    path.write_text(manifest.replace("twice<{T}, {THREADS}>", "twice").replace('["f32", "f64"]', '["f32"]'))
    (path.parent / "twice.cu").write_text(f"""// {tmp_path} {os.getpid()}
extern "C" __global__ void twice(float* y, const float* x, long long n) {{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}}
""")
    return path


def test_what_another_user_left_under_the_path_blocks_nobody(kbundle, nvcc, tmp_path):
    build = lambda cache: kbundle("build", nvcc, "-o", tmp_path / "x.kb", "--target", "sm_90a", "--cache", tmp_path / cache)
    assert build("first").code == 0
    before = (tmp_path / "x.kb").read_bytes()
    keys = {name for path in (tmp_path / "first").rglob("*") for name in re.findall("[0-9a-f]{64}", path.name)}
    assert keys
    # A folder cannot be opened as a lock, as what is another's cannot.
    stands = [pathlib.Path(f"/tmp/kbundle-{key[:32]}.lock") for key in keys]
    for path in stands:
        path.mkdir()
    try:
        done = build("second")
        assert done.code == 0, done.err
        assert (tmp_path / "x.kb").read_bytes() == before
    finally:
        for path in stands:
            path.rmdir()
