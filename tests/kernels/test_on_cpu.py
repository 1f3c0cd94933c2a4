"""Promise: kernels for GPUs compute what they should where there is none: their C++, run on the CPU by simt/machine.h, and the
arithmetic beside them, are held to float64 by *_test.cc. Each is a program of GoogleTest, and is not compiled and run again while
all that its compilation read is what it was when it passed: it has no other input, since its random numbers have fixed seeds.

Kernels include headers of their own folder. They are copied without the one that holds a GPU's instructions, so that
that of simt/ takes its place, or of simt/FAMILY/; score_mods.h beside them is the builder's own.
"""

import functools
import itertools
import pathlib
import shutil
import subprocess

import kept
import pytest
from cli.command import Command

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KERNELS = ROOT / "kernels"
HEADERS = {"grouped": "few.cuh groups.cuh product.cuh scaled_tile.cuh scales.cuh tile.cuh",
           "attention": "decode.cuh decode_block.cuh decode_cluster.cuh decode_combine.cuh decode_fp8.cuh decode_load.cuh decode_split.h mask.cuh "
                        "params.cuh score.cuh tile.cuh",
           "cross_entropy": "backward.cuh forward.cuh loss.cuh reduce.cuh row.cuh team.cuh",
           "norm": "backward.cuh backward_few.cuh backward_ring.cuh few.cuh forward.cuh forward_few.cuh forward_long.cuh forward_packed.cuh "
                   "forward_staged.cuh loose.cuh packed_sums.cuh quantized.cuh quantized_ahead.cuh quantized_packed.cuh ring.cuh row.cuh "
                   "staged.cuh team.cuh transpose.cuh",
           "quantize": "activation.cuh block_tile.cuh block_transpose.cuh blocks.cuh gradient.cuh grouped.cuh grouped_stream.cuh mx.cuh "
                       "state.cuh stream.cuh transpose.cuh vector.cuh",
           "router": "backward.cuh forward.cuh loss.cuh row.cuh select.cuh"}
# One modifier, number 1, which tells every index apart.
SCORE_MODS = {"attention": "s + slope[h] * q + gain * k * (b + 1) / 64"}
TESTS = sorted(HERE.glob("*_test.cc"))
LINKED = ("gtest", "gtest_main")
# Parsed once for all of them: a second of each, which is what a small one takes itself.
COMMON = "".join(f"#include <{header}>\n" for header in "gtest/gtest.h algorithm cmath functional map memory numeric random string vector".split())


def score_header(command, folder, expression):
    """score_mods.h as the builder gives it to a compiler: one that stands in for the compiler keeps it."""
    folder.mkdir()
    (folder / "probe.toml").write_text(f'''
[family]
name = "probe"
score_mods = {{ probe = "{expression}" }}
[op.probe]
operands = {{ x = "f32[N]" }}
results = {{ y = "f32[N]" }}
score_mods = {{ b = "N", h = "N", q = "N", k = "N" }}
[[op.probe.variant]]
name = "probe"
provider = "host"
source = "probe.cc"
steps = [{{ kernel = "probe", range = "N", args = ["y", "x"] }}]
''')
    (folder / "probe.cc").write_text('#include "kbundle/host_kernel.h"\n#include "score_mods.h"\n'
                                     "static void Probe(int64_t, int64_t, float*, const float*) {}\nKB_HOST_KERNEL(probe, Probe)\n")
    compiler = folder / "c++"
    compiler.write_text(f'#!/bin/sh\nif [ -f score_mods.h ]; then cp score_mods.h "{folder}"; fi\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    run = Command(command, folder / "cache", folder / "home")
    done = run("build", folder / "probe.toml", "-o", folder / "probe.kb", "--target", "x86-64-v2", env={"KBUNDLE_CXX": str(compiler)})
    assert done.code == 0, done.err
    return folder / "score_mods.h"


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory):
    made = tmp_path_factory.mktemp("kernels")
    for family, headers in HEADERS.items():
        (made / family).mkdir()
        for header in headers.split():
            shutil.copy(KERNELS / family / header, made / family)
        for stand_in in (HERE / "simt" / family).glob("*.cuh"):
            shutil.copy(stand_in, made / family)
        if family in SCORE_MODS:
            shutil.copy(score_header(command, made / f"{family}_scores", SCORE_MODS[family]), made / family)
    (made / "common.h").write_text(COMMON)
    return made


def files_read(depfile):
    """Of a rule for make: what is behind the colon."""
    return depfile.read_text().replace("\\\n", " ").partition(": ")[2].split()


def compile_words(folder):
    return ["c++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{HERE.parent}", "-isystem", folder, "-isystem", HERE / "simt",
            "-isystem", KERNELS / "include", "-Winvalid-pch"]


@pytest.fixture(scope="module")
def compiled(folder):
    """An object of a source, made once, and the files that were read for it."""
    def compile(source, made, *words):
        depends = folder / f"{source.stem}.d"
        subprocess.run([*compile_words(folder), "-MD", "-MF", depends, *words, source, "-o", made], check=True)
        return made, files_read(depends)

    @functools.cache
    def common():
        return compile(folder / "common.h", folder / "common.h.gch", "-x", "c++-header")

    @functools.cache
    def make(source):
        parsed, read_for_it = common()
        made, read = compile(source, folder / f"{source.stem}.o", "-include", parsed.with_suffix(""), "-c")
        return made, [*read, *read_for_it]
    return make


@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.stem)
def test_kernels_on_the_cpu(test, folder, compiled, request):
    compiler = subprocess.run(["c++", "--version"], check=True, capture_output=True, text=True).stdout
    words = [str(word).replace(str(folder), "").replace(str(ROOT), "") for word in compile_words(folder)]
    passed = kept.Passed(test.name, compiler, *words, roots=(folder, ROOT))
    if passed.before():
        request.node.user_properties.append(kept.PROPERTY)
        return
    objects, read = zip(*(compiled(source) for source in (test, HERE / "simt/machine.cc")))
    program = folder / test.stem
    subprocess.run(["c++", *objects, *[f"-l{name}" for name in LINKED], "-o", program], check=True)
    ran = subprocess.run([program, "--gtest_brief=1"], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-5000:]
    passed.now({*itertools.chain(*read), *(program_library(name) for name in LINKED)})


def program_library(name):
    """What the linker takes for -lNAME."""
    for form in (f"lib{name}.so", f"lib{name}.a"):
        found = subprocess.run(["c++", f"-print-file-name={form}"], check=True, capture_output=True, text=True).stdout.strip()
        if pathlib.Path(found).exists():
            return found
    raise AssertionError(f"no library {name}")


def test_what_passed_is_done_again_when_a_file_that_it_read_has_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("KBUNDLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KB_TEST_ALL", raising=False)
    for checkout in ("a", "b"):
        (tmp_path / checkout).mkdir()
        (tmp_path / checkout / "kernel.cuh").write_text("one")
    here, there = (kept.Passed("it", "-O2", roots=(tmp_path / checkout,)) for checkout in ("a", "b"))
    assert not here.before()
    here.now([tmp_path / "a/kernel.cuh"])
    assert here.before() and there.before() and not kept.Passed("it", "-O3", roots=(tmp_path / "a",)).before()
    (tmp_path / "b/kernel.cuh").write_text("two")
    assert here.before() and not there.before()
    (tmp_path / "a/kernel.cuh").unlink()
    assert not here.before()
    (tmp_path / "a/kernel.cuh").write_text("one")
    assert here.before()
    monkeypatch.setenv("KB_TEST_ALL", "1")
    assert not here.before()
