"""Kernels written in Triton build without a GPU, to the same bytes anywhere, and every mistake says what to do.

Needs a Python with triton==3.6.0: KBUNDLE_PYTHON, else the one that runs the tests.
"""

import functools
import json

import pytest
from cli.python_provider import (asks_for_the_package, builds_the_same_bytes_anywhere, edit, needs,
                                 needs_no_python_when_left_out)

WITH_TRITON = needs("triton", "3.6.0")


def build(kbundle, library, output, *more, **how):
    return kbundle("build", library, "-o", output, "--target", "sm_90a", "--json", *more, **how)


@WITH_TRITON
def test_two_folders_and_two_caches_give_the_same_bytes_and_the_second_build_compiles_nothing(kbundle, library):
    builds_the_same_bytes_anywhere(functools.partial(build, kbundle), library, "tri", foreign=(b"/kbundle",))


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


def test_triton_missing_or_of_another_version_is_exit_code_3_and_says_what_to_install(kbundle, library):
    asks_for_the_package(kbundle, functools.partial(build, kbundle), library, "Triton", "triton", "3.6.0", older="3.4.0")


def test_a_python_that_is_not_there_is_named(kbundle, library, tmp_path):
    done = build(kbundle, library, tmp_path / "tri.kb", "--python", tmp_path / "nowhere")
    assert done.code == 3 and "nowhere" in done.err and "--python" in done.err


def test_providers_left_out_need_no_triton(kbundle, library):
    needs_no_python_when_left_out(functools.partial(build, kbundle), library)
