"""Kernels written in Triton build without a GPU, to the same bytes anywhere, and every mistake says what to do.

Needs a Python with triton==3.6.0: KBUNDLE_PYTHON, else the one that runs the tests.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from cli.command import Command

LIBRARY = pathlib.Path(__file__).resolve().parent / "library"
PYTHON = os.environ.get("KBUNDLE_PYTHON", sys.executable)
VERSION = subprocess.run([PYTHON, "-c", "import importlib.metadata as m; print(m.version('triton'))"],
                         capture_output=True, text=True).stdout.strip()
WITH_TRITON = pytest.mark.skipif(VERSION != "3.6.0", reason=f"{PYTHON} has triton {VERSION or '(none)'}, not 3.6.0")


@pytest.fixture
def library(tmp_path):
    return pathlib.Path(shutil.copytree(LIBRARY, tmp_path / "library"))


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("triton_cache")


@pytest.fixture
def kbundle(command, shared_cache, tmp_path):
    """The command; what these tests compile they share, since a kernel's key is its content."""
    (tmp_path / "home").mkdir()
    run = Command(command, shared_cache, tmp_path / "home")
    run.environment["KBUNDLE_PYTHON"] = PYTHON
    return run


def build(kbundle, library, output, *more, **how):
    return kbundle("build", library, "-o", output, "--target", "sm_90a", "--json", *more, **how)


def edit(path, *replacements):
    text = path.read_text()
    for before, after in replacements:
        assert before in text, f"{path.name} has no {before!r}"
        text = text.replace(before, after)
    path.write_text(text)


@WITH_TRITON
def test_two_folders_and_two_caches_give_the_same_bytes_and_the_second_build_compiles_nothing(kbundle, library, tmp_path):
    first = build(kbundle, library, tmp_path / "tri.kb", "--jobs", "2")
    assert first.code == 0, first.err
    again = build(kbundle, library, tmp_path / "again.kb", "--name", "tri")
    assert again.json["compiled"] == 0 and again.json["reused"] == first.json["objects"]
    away = shutil.copytree(LIBRARY, tmp_path / "somewhere/else")
    elsewhere = build(kbundle, away, tmp_path / "else.kb", "--name", "tri", "--cache", tmp_path / "own_cache")
    assert elsewhere.json["compiled"] == first.json["objects"], elsewhere.err
    assert (tmp_path / "tri.kb").read_bytes() == (tmp_path / "else.kb").read_bytes() == (tmp_path / "again.kb").read_bytes()
    assert b"/kbundle" not in (tmp_path / "tri.kb").read_bytes()


@WITH_TRITON
def test_what_triton_decided_stands_in_the_bundle(kbundle, library, tmp_path):
    assert build(kbundle, library, tmp_path / "tri.kb").code == 0
    kernels = {}
    for op in ("tri.add", "tri.normalize", "tri.total"):
        for variant in kbundle("inspect", tmp_path / "tri.kb", "--op", op, "--json").json["ops"][0]["variants"]:
            assert variant["provider"] == "triton" and variant["target"] == "sm_90a"
            kernels[variant["id"]] = variant["kernels"]
    assert kernels["tri.add/vectors[T=f32,BLOCK=1024,WARPS=8]@sm_90a"][0]["threads"] == 256
    row = kernels["tri.normalize/row[T=f32,O=f16,BLOCK=8192,GAIN=0]@sm_90a"][0]
    assert row["threads"] == 1024 and row["dynamic_shared"] > 0 and row["registers"] > 0
    steps = kernels["tri.total/two_pass@sm_90a"]
    assert [step["symbol"] for step in steps] == [None, "partial_sums_kernel", "sum_kernel"]
    assert kbundle("verify", tmp_path / "tri.kb").code == 0


@WITH_TRITON
def test_hints_decide_where_a_variant_is_legal(kbundle, library, tmp_path):
    assert build(kbundle, library, tmp_path / "tri.kb").code == 0

    def chosen(n, *more):
        return kbundle("explain", tmp_path / "tri.kb", "tri.add", "--operand", f"x=f32[{n}]", "--operand", f"y=f32[{n}]",
                       "--target", "sm_90a", *more).out
    assert "chosen" in chosen(4096) or "vectors" in chosen(4096)
    assert "N % 16 == 0" in chosen(4099)
    assert "align(out) % 16 == 0" in chosen(4096, "--align", "4")


@WITH_TRITON
def test_other_targets_are_left_out_aloud_and_exact_ones_are_made(kbundle, library, tmp_path):
    done = kbundle("build", library, "-o", tmp_path / "tri.kb", "--target", "sm_80,sm_100f,portable", "--dry-run", "--explain")
    assert done.code == 0 and "out of sm_100f: Triton makes sm_100a" in done.out + done.err
    done = kbundle("build", library, "--only", "tri.total/two_pass@sm_100a", "--target", "sm_100a")
    assert done.code == 0, done.err


@WITH_TRITON
@pytest.mark.parametrize("change, why, compiled", [
    (("moments.py", "tl.sum(value) / count", "tl.sum(value) * (1 / count)"), "moments.py changed", "tri.normalize"),
    (("tri.toml", "num_stages      = 2", "num_stages      = 3"), "flags changed", "tri.add/vectors"),
])
def test_a_change_compiles_what_depends_on_it_again(kbundle, library, tmp_path, change, why, compiled):
    assert build(kbundle, library, tmp_path / "tri.kb").code == 0
    edit(library / change[0], change[1:])
    done = kbundle("build", library, "--target", "sm_90a", "--dry-run", "--explain")
    lines = [line for line in (done.out + done.err).splitlines() if line.startswith("compile ")]
    assert lines and all(compiled in line and why in line for line in lines)


@WITH_TRITON
@pytest.mark.parametrize("file, change, wanted", [
    ("tri.toml", ('args            = ["out", "x", "y", "i32(N)", "f32(scale)", "bool(magnitude)"]',
                  'args            = ["out", "x", "y", "i32(N)", "f32(scale)"]'),
     ["tri.toml:29:", "takes 6 arguments besides its constexprs, the manifest passes 5", "^", "out, x, y, n, scale, magnitude"]),
    ("tri.toml", ('constexprs      = { BLOCK = "BLOCK" }', 'constexprs      = { BLOK = "BLOCK" }'),
     ["tri.toml:28:", "constexpr 'BLOK' is no parameter of add_kernel(out, x, y, n, scale, magnitude, BLOCK)", "^~~~"]),
    ("tri.toml", ('constexprs      = { BLOCK = "BLOCK" }', 'constexprs      = {}'),
     ["parameter 'BLOCK' of add_kernel", "is a tl.constexpr without a value", "`constexprs`"]),
    ("tri.toml", ('kernel          = "add_kernel"', 'kernel          = "ad_kernel"'),
     ["elementwise.py has no function 'ad_kernel'", "add_kernel, partial_sums_kernel, sum_kernel"]),
    ("elementwise.py", ("tl.abs(value), value)", "tl.abs(valu), value)"), ["elementwise.py:13:", "valu is not defined"]),
    ("elementwise.py", ("@triton.jit\ndef add_kernel(", "@triton.jit\ndef add_kernel(("), ["elementwise.py:7:", "SyntaxError"]),
    ("elementwise.py", ("import triton\n", "import triton\nimport not_there\n"), ["No module named 'not_there'"]),
    ("elementwise.py", ("@triton.jit\ndef add_kernel", "@triton.autotune([triton.Config({})], key=[])\n@triton.jit\ndef add_kernel"),
     ["'add_kernel' of elementwise.py is no @triton.jit function but Autotuner", "tunables of the manifest"]),
    ("elementwise.py", ("tl.sum(tl.load(partial + tl.arange(0, BLOCK)))",
                        "tl.sum(tl.make_tensor_descriptor(partial, [BLOCK], [1], [256]).load([0]))"),
     ["tri.toml:", "'sum_kernel' wants global_scratch_size = 128 bytes", "use pointers"]),
    ("elementwise.py", ("import triton\n", "import triton\nimport os; os.abort()\n"), ["ended with signal 6"]),
    ("elementwise.py", ("import triton\n", "import triton\nimport sys; sys.exit(3)\n"), ["ended with exit code 3"]),
    ("elementwise.py", ("import triton\n", "import triton\nwhile True: pass\n"), ["stopped after 4 s", "KBUNDLE_COMPILE_TIMEOUT"]),
], ids=["too_few_arguments", "unknown_constexpr", "missing_constexpr", "unknown_function", "undefined_name", "syntax",
        "missing_module", "autotuner", "scratch", "abort", "exit", "hang"])
def test_a_mistake_is_one_clear_error_with_a_command_that_shows_it(kbundle, library, tmp_path, file, change, wanted):
    edit(library / file, change)
    limit = {"KBUNDLE_COMPILE_TIMEOUT": "4"} if "stopped after 4 s" in wanted else {}
    done = build(kbundle, library, tmp_path / "tri.kb", "--jobs", "1", env=limit)
    assert done.code == 1 and not (tmp_path / "tri.kb").exists()
    missing = [part for part in wanted if part not in done.err]
    assert not missing, f"{missing} not in:\n{done.err}"
    assert "to see it again: kbundle build" in done.err and "--only" in done.err
    assert str(tmp_path / "home") not in done.err and "Traceback" not in done.err


def stub_python(folder, facts):
    """A Python that says it has another Triton."""
    folder.mkdir()
    (folder / "python").write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    (folder / "python").chmod(0o755)
    return folder / "python"


@pytest.mark.parametrize("facts, found", [
    ({"python": "3.11.2", "version": "", "record": "", "files": []}, "has none"),
    ({"python": "3.11.2", "version": "3.4.0", "record": "00", "files": []}, "has triton 3.4.0"),
])
def test_triton_missing_or_of_another_version_is_exit_code_3_and_says_what_to_install(kbundle, library, tmp_path, facts, found):
    python = stub_python(tmp_path / "stub", facts)
    done = build(kbundle, library, tmp_path / "tri.kb", "--python", python)
    assert done.code == 3
    for part in (found, f"{python} -m pip install triton==3.6.0", "--python", "--provider cuda,host"):
        assert part in done.err
    rows = {f["part"]: f for f in kbundle("doctor", "--json", env={"KBUNDLE_PYTHON": str(python)}).json["findings"]}
    assert not rows["Triton"]["found"] and found in rows["Triton"]["advice"]


def test_a_python_that_is_not_there_is_named(kbundle, library, tmp_path):
    done = build(kbundle, library, tmp_path / "tri.kb", "--python", tmp_path / "nowhere")
    assert done.code == 3 and "nowhere" in done.err and "--python" in done.err


def test_providers_left_out_need_no_triton(kbundle, library, tmp_path):
    done = build(kbundle, library, tmp_path / "tri.kb", "--provider", "cuda,host", "--python", tmp_path / "nowhere")
    assert done.code == 1 and "no variant of these manifests" in done.err
