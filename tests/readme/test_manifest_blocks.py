"""Promise: every block of builder/MANIFEST.md is legal as it stands: put into its frame, it is read, planned or compiled by `kbundle build`.

A frame (frames/PLACE.toml) is a manifest with a line @BLOCK@ where the page's block belongs; PLACE is the section of the page and the block's
number there. Its first line is the command that must accept it. Sources stand beside it.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pages  # noqa: E402
from classes import block_class_of  # noqa: E402

ROOT = pages.ROOT
PAGE = "builder/MANIFEST.md"
FRAMES = pathlib.Path(__file__).resolve().parent / "frames"
CHECKS = """#pragma once
#include "score_mods.h"
template <typename A, typename B> constexpr bool same = false;
template <typename A> constexpr bool same<A, A> = true;
"""


def of(kind):
    return [block for block in pages.blocks(PAGE) if block_class_of(block) == kind]


def framed(block, folder):
    """The folder with every source, the block in its frame as page.toml, and the options that the frame's first line says."""
    frame = FRAMES / f"{block.place}.toml"
    assert frame.exists(), f"{block} stands in no frame: write {frame}"
    for path in FRAMES.iterdir():
        if path.suffix != ".toml":
            shutil.copy(path, folder)
    shutil.copytree(ROOT / "kernels/matmul/algorithms", folder / "algorithms")
    (folder / "score_checks.h").write_text(CHECKS)
    [lines] = of("lines")
    (folder / "problems.jsonl").write_text(lines.text)
    [kernel] = of("kernel")
    for name, one in (("page.toml", block), (f"{kernel.place}.cc", kernel)):
        text = (FRAMES / name.replace("page", block.place)).read_text()
        before, after = re.split(r"^.*@BLOCK@\n", text, flags=re.M)
        (folder / name).write_text(before + one.text + after)
    return re.match(r"# kbundle build (.*)", frame.read_text()).group(1).split()


def run(*words):
    env = dict(os.environ, KBUNDLE_PYTHON=sys.executable)
    done = subprocess.run([str(w) for w in words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("block", of("framed"), ids=lambda block: block.place)
def test_a_block_of_a_manifest_is_accepted_as_it_stands(block, tmp_path, command):
    options = framed(block, tmp_path)
    said = run(command, "build", tmp_path, "-o", tmp_path / "page.kb", "--cache", tmp_path / "cache", *options)
    assert "leave out" not in said


# Each line of the page's description of score_mods.h, and what holds it to the header that the builder makes.
HEADER = {
    "struct ScoreArgs { float scalars[8]; const float* tensor0; const float* tensor1; int heads, queries, keys; };": """
        inline ScoreArgs MadeOf(const float* t) { return {{1, 2, 3, 4, 5, 6, 7, 8}, t, t, 1, 2, 3}; }
        static_assert(same<decltype(ScoreArgs::scalars), float[8]> && same<decltype(ScoreArgs::tensor0), const float*> &&
                      same<decltype(ScoreArgs::tensor1), const float*> && same<decltype(ScoreArgs::heads), int> &&
                      same<decltype(ScoreArgs::queries), int> && same<decltype(ScoreArgs::keys), int>);
        static_assert(sizeof(ScoreArgs) == 64);""",
    "inline constexpr int kScoreMods = N;": "static_assert(kScoreMods == 3 && same<decltype(kScoreMods), const int>);",
    "template <int MOD> struct ScoreMod {": "using First = ScoreMod<1>; using Last = ScoreMod<kScoreMods - 1>;",
    "static constexpr bool kIdentity;": "static_assert(ScoreMod<0>::kIdentity && !First::kIdentity && !Last::kIdentity);",
    "KB_SCORE static float Apply(float s, int b, int h, int q, int k, const ScoreArgs& a);":
        "static_assert(same<decltype(&First::Apply), float (*)(float, int, int, int, int, const ScoreArgs&)>);",
    "KB_SCORE static float Slope(float s, int b, int h, int q, int k, const ScoreArgs& a);":
        "static_assert(same<decltype(&Last::Slope), float (*)(float, int, int, int, int, const ScoreArgs&)>);",
    "};": "",
    "template <int = 0, typename F> KB_SCORE void WithScoreMod(int mod, const F& f);": """
        KB_SCORE float Dispatched(int mod, float s, const ScoreArgs& a) {
          float sum = 0;
          WithScoreMod(mod, [&](auto one) { sum = one.Apply(s, 0, 0, 0, 0, a) + decltype(one)::Slope(s, 0, 0, 0, 0, a); });
          WithScoreMod<1>(mod, [&](auto one) { sum += one.kIdentity; });
          return sum;
        }""",
}


def test_every_line_of_the_header_of_score_modifiers_holds_on_both_devices(tmp_path, command):
    [block] = of("header")
    lines = [re.sub(r"\s*// .*", "", line).strip() for line in block.text.splitlines()]
    assert lines == list(HEADER), "say in HEADER what holds each line"
    [around] = [b for b in of("framed") if b.place == "score_modifiers_2"]
    options = framed(around, tmp_path)
    (tmp_path / "score_checks.h").write_text("\n".join([CHECKS, *HEADER.values(), ""]))
    run(command, "build", tmp_path, "-o", tmp_path / "page.kb", "--cache", tmp_path / "cache", *options)


NOTES = """
def noted(function):
    import functools, pathlib

    @functools.wraps(function)
    def run(*given, **named):
        with (pathlib.Path(__file__).parent / "notes").open("a") as out:
            out.write(f"{function.__name__} {np.shape(given[0])}\\n")
        return function(*given, **named)
    return run

for name in [name for name, value in globals().items() if callable(value) and name != "noted"]:
    globals()[name] = noted(globals()[name])
"""


def test_the_host_kernel_and_its_reference_are_a_library_and_every_name_is_looked_for(tmp_path, command):
    [reference] = of("reference")
    [step] = [b for b in of("framed") if b.place == "a_variant_2"]
    framed(step, tmp_path)
    (tmp_path / "reference.py").write_text(reference.text + NOTES)
    run(command, "test", tmp_path, "--target", "host", "--python", sys.executable)
    notes = (tmp_path / "notes").read_text()
    assert "make_inputs" in notes
    large = set(re.findall(r"^softmax \((\d+), 1000\)", notes, re.M))
    assert large and "1600" not in large, "INDEPENDENT_AXIS did not cut the large problem"

    from conformance import capi, devices, runner
    run(command, "build", tmp_path, "-o", tmp_path / "page.kb", "--target", "host")
    conformance = runner.Conformance(tmp_path / "page.kb", devices.Host(), [tmp_path], few=True)
    [op] = conformance.ops()
    outcome = conformance.run(op, next(conformance.variants(op))[0])
    assert outcome.passed, outcome.reason()
    problem = next(conformance.bundle.listed())
    conformance.device = types.SimpleNamespace(kind=capi.CUDA)
    assert conformance.repeats(op, problem, "y") is True
    notes = (tmp_path / "notes").read_text()
    names = set(re.findall(r"^def (\w+)", reference.text, re.M))
    assert names == set(re.findall(r"^(\w+) ", notes, re.M)), "no one looks for the others"
