"""Promise: a kernel's struct is filled by the names of its fields, on the GPU's side and on the CPU, and a field of another name, type
or place is an error at the manifest's line."""

import re

import numpy as np
import pytest

PARAMS = """
template <typename T> struct Span { T* first; long long count; };
template <typename T> struct Params {
  Span<T> y;
  const T* x;
  const float* bias;
  float scale;
  bool negate;
  short rows;
  int shifts[3];
};
"""
CUDA = PARAMS + """
template <typename T> __global__ void axpy(Params<T> p, int columns) {
  for (long long i = threadIdx.x; i < p.y.count; i += blockDim.x) {
    p.y.first[i] = p.scale * p.x[i] * (p.negate ? -1 : 1) + p.shifts[i % columns % 3] + (p.bias ? p.bias[0] : 0) + p.rows;
  }
}
"""
HOST = """#include "kbundle/host_kernel.h"
namespace {""" + PARAMS + """
void Axpy(int64_t begin, int64_t end, Params<float> p, int columns) {
  for (int64_t i = begin; i < end; ++i) {
    p.y.first[i] = p.scale * p.x[i] * (p.negate ? -1 : 1) + p.shifts[i % columns % 3] + (p.bias ? p.bias[0] : 0) + p.rows;
  }
}
}  // namespace
KB_HOST_KERNEL(axpy, Axpy)
"""
FIELDS = ['"y.first: y"', '"y.count: i64(R * C)"', '"x"', '"bias"', '"scale: f32(scale)"', '"negate: bool(negate)"', '"rows: i16(R)"',
          '"shifts: i32[3](shifts)"']
MANIFEST = """
[family]
name = "axpy"

[op.run]
types = {{ T = ["f32"] }}
operands = {{ x = "T[R, C]", bias = {{ shape = "f32[1]", optional = true }} }}
attributes = {{ scale = {{ type = "float" }}, negate = {{ type = "bool" }}, shifts = {{ type = "int[]", max_len = 3 }} }}
results = {{ y = "T[R, C]" }}
require = ["R <= 1000"]
vmap = "none"

[op.run.define]
PARAMS = [{fields}]

[[op.run.variant]]
name = "cuda"
provider = "cuda"
source = "axpy.cu"
steps = [{{ kernel = "axpy<{{T}}>", grid = [1], block = [256], args = [{{ struct = "Params<{{T}}>", fields = ["{{PARAMS}}"] }}, "i32(C)"] }}]

[[op.run.variant]]
name = "host"
provider = "host"
source = "axpy.cc"
steps = [{{ kernel = "axpy", range = "R * C", args = [{{ struct = "Params<{{T}}>", fields = ["{{PARAMS}}"] }}, "i32(C)"] }}]
"""


@pytest.fixture
def build(kbundle, tmp_path):
    def run(fields, target):
        (tmp_path / "axpy.cu").write_text(CUDA)
        (tmp_path / "axpy.cc").write_text(HOST)
        (tmp_path / "axpy.toml").write_text(MANIFEST.format(fields=", ".join(fields)))
        return kbundle("build", tmp_path / "axpy.toml", "-o", tmp_path / "axpy.kb", "--target", target)
    return run


def test_the_host_kernel_computes_with_the_struct(build, tmp_path):
    import jax
    import kbundle
    import kbundle.jax as kbj
    assert build(FIELDS, "x86-64-v2").code == 0
    bundle = kbundle.open(str(tmp_path / "axpy.kb"))
    x = np.random.default_rng(7).standard_normal((37, 11)).astype(np.float32)
    shift = np.asarray([3, -5, 70000])[np.arange(x.size) % 11 % 3].reshape(x.shape)
    for bias in (None, np.asarray([0.25], np.float32)):
        call = jax.jit(lambda x, b=bias: kbj.call(bundle, "axpy.run", x, b, scale=0.5, negate=True, shifts=[3, -5, 70000]))
        [y] = jax.tree.leaves(call(x))
        wanted = -0.5 * x + shift + (0 if bias is None else 0.25) + 37
        np.testing.assert_allclose(y, wanted, rtol=1e-6)
    explained = bundle.explain("axpy.run", x, None, scale=0.5, negate=True, shifts=[3, -5, 70000])
    [args] = [step["args"] for step in explained["launch"]["steps"]]
    fields = {field["text"]: field for field in args[0]["fields"]}
    assert args[0]["bytes"] == 56 and fields["i16(R)"] == {"text": "i16(R)", "offset": 38, "ctype": "i16", "value": 37}
    assert fields["y"]["at"] == {"result": "y", "offset": 0} and fields["bias"]["at"] is None
    assert fields["i32[3](shifts)"]["value"] == [3, -5, 70000]


def test_a_row_count_that_the_field_cannot_hold_is_refused(kbundle, build, tmp_path):
    assert build(FIELDS, "x86-64-v2").code == 0
    (tmp_path / "axpy.toml").write_text((tmp_path / "axpy.toml").read_text().replace('"R <= 1000"', '"R <= 100000"'))
    assert kbundle("build", tmp_path / "axpy.toml", "-o", tmp_path / "axpy.kb", "--target", "x86-64-v2").code == 0
    done = kbundle("explain", tmp_path / "axpy.kb", "axpy.run", "--operand", "x=f32[40000,2]", "--attr", "scale=1", "--attr", "negate=0",
                   "--attr", "shifts=[1]", "--target", "x86-64-v2")
    assert done.code == 1 and "40000 does not fit i16" in done.out + done.err


WRONG = [
    ("other name", lambda f: [f[0].replace("y.first", "y.begin"), *f[1:]], r"begin"),
    ("other order", lambda f: [*f[:2], f[3], f[2], *f[4:]], r"field 'bias' is not at byte 16 of Params<float>"),
    ("one left out", lambda f: f[:-1], r"Params<float> is not of 40 bytes, which these fields are: list all of its fields"),
    ("f64 in a float", lambda f: [*f[:4], f[4].replace("f32(", "f64("), *f[5:]], r"field 'scale' of Params<float> cannot hold f64\(scale\)"),
    ("u32 in a short", lambda f: [*f[:6], '"rows: u32(R)"', f[7]], r"cannot hold u32\(R\), which is u32"),
    ("unsigned", lambda f: [*f[:6], '"rows: u16(R)"', f[7]], r"cannot hold u16\(R\), which is u16"),
    ("number for a pointer", lambda f: [*f[:3], '"bias: i64(R)"', *f[4:]], r"field 'bias' of Params<float> cannot hold i64\(R\)"),
    ("operand that is written", lambda f: ['"y.first: x"', *f[1:]],
     r"through field 'y.first' of Params<float> the kernel may write, but x is an operand"),
]


@pytest.mark.parametrize("target", ["sm_90a", "x86-64-v2"])
@pytest.mark.parametrize("_, change, words", WRONG, ids=[name for name, *_ in WRONG])
def test_what_the_struct_is_not_is_told_at_the_field(build, _, change, words, target):
    done = build(change(FIELDS), target)
    assert done.code == 1 and re.search(words, done.err), done.err
    line = MANIFEST[:MANIFEST.index("PARAMS =")].count("\n") + 1
    place = f"axpy.toml:{line}:" if "left out" not in _ else "axpy.toml:"
    assert place in done.err and "kb_fields" not in done.err, done.err


def test_the_gpus_code_takes_it_too(build):
    done = build(FIELDS, "sm_80,sm_90a,portable")
    assert done.code == 0, done.err
