"""Promise: a wrong line of `independent` is an error at its place, which says what there is; a right one is in the bundle."""

import subprocess

import pytest

MANIFEST = """
[family]
name = "cut"

[op.run]
operands = {{ x = "f32[rows.., N]" }}
results = {{ y = "f32[rows.., N]" }}
independent = {cuts}

[[op.run.variant]]
name = "loop"
provider = "host"
source = "run.cc"
steps = [{{ kernel = "run", range = "rows * N", args = ["y", "x"] }}]
"""
SOURCE = """#include "kbundle/host_kernel.h"
static void Run(int64_t begin, int64_t end, float* y, const float* x) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i];
}
KB_HOST_KERNEL(run, Run)
"""


def build(command, folder, cuts):
    (folder / "cut.toml").write_text(MANIFEST.format(cuts=cuts))
    (folder / "run.cc").write_text(SOURCE)
    return subprocess.run([command, "build", str(folder / "cut.toml"), "-o", str(folder / "cut.kb"), "--force", "--target", "x86-64-v2"],
                          capture_output=True, text=True)


@pytest.mark.parametrize("cuts, texts", [
    ('["M"]', ["cut.toml:8:17", "'M' is no dim symbol", "there are rows, N"]),
    ('[{ dims = ["N"], sums = ["z"] }]', ["'z' is no result", "there are y"]),
    ('[{ dims = ["N"], once = ["y"] }]', ["'y' is no operand", "there are x"]),
    ('[{ dims = ["N", "N"] }]', ["'N' is there twice"]),
    ('[{ dims = ["rows", "N"] }]', ["'rows..' is cut along each of its dims", "a cut of its own"]),
    ('[{ dims = ["N"], when = "N +" }]', ["cut.toml:8:"]),
    ('[{ sums = ["y"] }]', ["dims"]),
    ('[{ dims = ["N"], sum = ["y"] }]', ["'sum'", "sums"]),
    ('"N"', ["independent"]),
    ("[3]", ["a cut"]),
])
def test_a_wrong_cut_is_an_error_at_its_line(command, tmp_path, cuts, texts):
    done = build(command, tmp_path, cuts)
    assert done.returncode == 1, done.stderr
    for text in texts:
        assert text in done.stderr


def test_cuts_are_what_doubles_with_their_symbols(command, tmp_path):
    import kbundle
    from kbundle import _spec
    from kbundle._bundle import HOST
    done = build(command, tmp_path, '["rows", { dims = ["N"], when = "N > 4" }]')
    assert done.returncode == 0, done.stderr
    with kbundle.open(tmp_path / "cut.kb") as bundle:
        def divided(*shape):
            cuts = bundle.infer("cut.run", (_spec.operand(("f32", shape)),), (), HOST)["cuts"]
            assert all(cut["operands"] == cut["results"] and cut["sums"] == cut["once"] == [] for cut in cuts)
            return [cut["operands"][0] for cut in cuts]
        assert divided(3, 5, 8) == [0, 1, 2]
        assert divided(3, 1, 4) == [0]
        assert divided(8) == [0] and divided(4) == [] and divided(0, 8) == [1]
