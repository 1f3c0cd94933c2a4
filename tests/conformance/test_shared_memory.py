"""Promise: attention's manifest and its kernels agree on shared memory and threads. The kernels lay their tiles out by constants of their
headers, the manifest says how many bytes a launch gets: NVRTC compares the two for every head size, and every grid of decode's, as text of
both stands, in tiles of either size, and a tile that is changed in one of them alone does not compile."""

import itertools
import re
import shutil
import subprocess

import pytest

from conformance import modified_attention

FAMILY = modified_attention.FAMILY
# What a kernel of this name needs: a class of the headers, its bytes.
NEEDS = {"forward": ("Forward", "kBytesQ + 2 * Kernel::kStage"), "keys": ("BackwardKeys", "kShared"),
         "keys_split": ("BackwardKeys", "kShared"), "queries": ("BackwardQueries", "kShared")}
MANIFEST = """
[family]
name = "probe"
reference = "reference.py"
[family.score_mods]
softcap = "cap * tanh(s / cap)"

[op.probe]
types = { T = ["f32"] }
operands = { x = "T[n..]" }
results = { y = "T[n..]" }
problems = [ { T = "f32", x = [4] } ]
[[op.probe.variant]]
name = "probe"
provider = "cuda"
source = "probe.cu"
steps = [ { kernel = "attention::probe<0>", grid = ["1"], block = ["32"], args = ["y", "x"] } ]
"""
SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include "decode_cluster.cuh"
#include "forward.cuh"
#include "backward_keys.cuh"
#include "backward_queries.cuh"
namespace attention {
%s
template <int kNone> __global__ void probe(float* y, const float* x) { y[0] = x[0]; }
}
"""
STRUCT = """template <int HEAD, int HEADV> struct Check%d {  // %s
  %s
  using Kernel = %s<__nv_bfloat16, HEAD, HEADV, 0, false, true>;
  static_assert((%s) == Kernel::%s, "shared memory of %s");
  static_assert((%s) == Kernel::kThreads, "threads of %s");
};
"""
DECODE = """template <int HEAD, int ROWS, int STAGES, int TILE, int PAGED> struct CheckDecode%d {
  using Block = Decode<__nv_bfloat16, %s, HEAD, ROWS, TILE, STAGES, true, PAGED != 0, 2>;
  static_assert((%s) == %s::kShared, "shared memory of decode");
  static_assert((%s) == Block::kThreads, "threads of decode");
};
"""
LAID_OUT_BY = {"decode": "Block::Shape", "decode_cluster": "ClusterDecode<Block>"}


def manifests():
    return "".join(path.read_text() for path in sorted(FAMILY.glob("*.toml")))


def launches():
    """(kernel, shared, block) of each launch with shared memory."""
    steps = re.findall(r'kernel = "attention::\w+?_(forward|backward_keys_split|backward_keys|backward_queries)<[^"]*",\s*'
                       r'grid = \[[^]]*\],\s*block = \["?([^]"]*)"?\],\s*shared = "(\w+)"', manifests())
    return sorted({(kernel.removeprefix("backward_"), shared, threads) for kernel, threads, shared in steps})


def decode_launches():
    """(kernel, element of the cache, whether there are pages, block, shared, values of each tunable) of each variant of decode that is
    written out."""
    found = re.findall(r'^tunables  = \{ (PLAIN = [^}]*) \}$(?:\n(?!\[\[).*)*?'
                       r'kernel = "attention::(\w+)<attention::Decode<\{POINT\}, \{STAGES\}, \{PLAIN\}, (\S+), \{BLOCKS\}>>",\s*'
                       r'grid = \[[^]]*\], block = \[(\d+)\],\s*(?:cluster = \["SHARE"\], )?programmatic = true,\s*shared = "(.*?)"',
                       manifests(), re.M)
    [by_decode] = re.findall(r'^  DECODE_SHARED = "(.*?)"$', manifests(), re.M)
    for tunables, kernel, paged, threads, shared in found:
        grid = {name: [int(value) for value in values.split(",")] for name, values in re.findall(r"(\w+) = \[(.*?)\]", tunables)}
        # What is called `{PAGED}` is 0 where the variant stands and 1 where the op of pages extends it.
        cache = "__nv_bfloat16" if paged == "{PAGED}" else "__nv_fp8_e4m3"
        shared = shared.replace("{DECODE_SHARED}", by_decode).replace("{PAGED}", "PAGED")
        yield kernel, cache, [0, 1] if paged == "{PAGED}" else [int(paged)], threads, shared, grid


def decode_checks():
    text = ""
    for number, (kernel, cache, paged, threads, shared, grid) in enumerate(decode_launches()):
        text += DECODE % (number, cache, shared, LAID_OUT_BY[kernel], threads)
        for point in itertools.product(*[grid[name] for name in ("HEAD", "ROWS", "STAGES", "TILE")], paged):
            text += f"template struct CheckDecode{number}<{', '.join(map(str, point))}>;\n"
    return text


def lets_of(small):
    """Those of the family, and in front of them those of the variants in small tiles, which agree."""
    lets = dict(re.findall(r'^  (AT_ONCE|KEYS|SHARED\w*) *= "(.*?)"', manifests(), re.M))
    own = set(re.findall(r'^flags.*-DKBUNDLE_SMALL_TILES.*$(?:\n(?!\[\[).*)*?\nlet       = \{ (\w+) = "(.*?)" \}$', manifests(), re.M))
    assert {name for name, _ in own} == {"AT_ONCE", "KEYS"} and len(own) == 2, own
    return lets | dict(own) if small else lets


def checks(small):
    """Each launch for every head size that a variant has, with the lets of the family."""
    heads = sorted({int(head) for list_ in re.findall(r"\bHEAD = \[(.*?)\]", manifests()) for head in list_.split(",")})
    lets = lets_of(small)
    constants = " ".join(f"static constexpr int {let} = {value};" for let, value in sorted(lets.items()))
    text = ""
    for number, (kernel, shared, threads) in enumerate(launches()):
        name, needs = NEEDS[kernel]
        text += STRUCT % (number, kernel, constants, name, shared, needs, kernel, threads, kernel)
        for head in heads:
            if kernel != "keys_split" or head <= 128:
                text += f"template struct Check{number}<{head}, {128 if head == 192 else head}>;\n"
    return text


def build(command, folder, change=lambda name, text: text, small=False):
    """The build of a probe that holds all checks beside copies of the headers, which `change` may edit."""
    for header in [*FAMILY.glob("*.cuh"), FAMILY / "decode_split.h"]:
        (folder / header.name).write_text(change(header.name, header.read_text()))
    shutil.copy(FAMILY / "reference.py", folder)
    (folder / "probe.toml").write_text(MANIFEST)
    source = SOURCE % (checks(small) + ("" if small else decode_checks()))
    (folder / "probe.cu").write_text("#define KBUNDLE_SMALL_TILES\n" * small + source)
    return subprocess.run([command, "build", str(folder / "probe.toml"), "--target", "sm_90a", "-o", str(folder / "probe.kb"), "--cache",
                           str(folder / "cache")], capture_output=True, text=True)


def test_every_launch_gets_what_its_kernel_lays_out(command, tmp_path):
    found = launches()
    assert {kernel for kernel, *_ in found} == set(NEEDS), found
    by_name, of_decode = re.findall(r'shared = "SHARED[KQ]?"', manifests()), len(list(decode_launches()))
    assert of_decode == 3 and manifests().count("shared = ") == len(by_name) + of_decode, "a size is written by hand"
    for small in (False, True):
        built = build(command, tmp_path, small=small)
        assert built.returncode == 0, built.stderr[-3000:]


@pytest.mark.parametrize("header, of, to, named", [
    ("decode_load.cuh", "float2 row[kWarps][16];", "float2 row[kWarps][17];", "shared memory of decode"),
    ("backward_keys.cuh", "kQueries = 64;", "kQueries = 128;", "shared memory of keys"),
    ("backward_queries.cuh", "kKeys = kHead > 128 ? 32 : 64;", "kKeys = 64;", "shared memory of queries"),
    ("forward.cuh", "kKeys = kHead > 128 && (kHeadV <= 128 || kSmallTiles) ? 32 : 64;", "kKeys = 64;", "shared memory of forward"),
    ("small_tiles.cuh", "kSmallTiles = true;", "kSmallTiles = false;", "shared memory of keys"),
    ("forward.cuh", "kWarps = kHeadV > 128 ? 8 : 4;", "kWarps = 8;", "threads of forward")])
def test_a_tile_that_only_the_kernel_changes_does_not_build(header, of, to, named, command, tmp_path):
    def change(name, text):
        assert name != header or of in text
        return text.replace(of, to) if name == header else text
    built = build(command, tmp_path, change, small=header == "small_tiles.cuh")
    assert built.returncode == 1 and named in built.stderr, built.stderr[-3000:]
