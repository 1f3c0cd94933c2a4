"""Kernels written in CuTe DSL build without a GPU, to the same bytes anywhere, for any shape that they take, and every mistake says
what to do.

Needs a Python with nvidia-cutlass-dsl==4.8.1: KBUNDLE_PYTHON, else the one that runs the tests.
"""

import functools
import json
import pathlib
import re
import shutil

import pytest
from cli.python_provider import builds_the_same_bytes_anywhere, edit, needs

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITH_CUTE = needs("nvidia-cutlass-dsl", "4.8.1")


def build(kbundle, library, output, *more, **how):
    return kbundle("build", library, "-o", output, "--target", "sm_90a", "--json", *more, **how)


@WITH_CUTE
def test_two_folders_and_two_caches_give_the_same_bytes_and_the_second_build_compiles_nothing(kbundle, library):
    # Neither a path nor host code.
    builds_the_same_bytes_anywhere(functools.partial(build, kbundle), library, "cut",
                                   foreign=(b"/kbundle-", b"/somewhere", b"tvm_ffi", b"cudaLaunch"))


def launch(kbundle, bundle, op, *problem):
    plan = kbundle("explain", bundle, op, *problem, "--target", "sm_90a", "--json").json["launch"]
    return plan["steps"]


@WITH_CUTE
def test_what_a_host_function_would_launch_stands_in_the_bundle(kbundle, library, tmp_path):
    assert build(kbundle, library, tmp_path / "cut.kb").code == 0
    assert kbundle("verify", tmp_path / "cut.kb").code == 0
    step, = launch(kbundle, tmp_path / "cut.kb", "cut.scale", "--operand", "x=bf16[300,512]", "--attr", "K=200", "factor=0.5")
    assert step["grid"] == [5, 4, 1] and step["block"] == [128, 1, 1] and step["shared"] == 64 * 64 * 2 + 8
    tensor_map = {field["offset"]: field for field in step["args"][0]["fields"]}
    # A tensor map of the driver: address; strides by 16 bytes from 12 on; sizes less one from 32 on.
    assert tensor_map[12]["value"] == 512 * 2 // 16 and tensor_map[32]["value"] == 199 and tensor_map[36]["value"] == 299
    assert step["args"][0]["bytes"] == 128
    first, second = launch(kbundle, tmp_path / "cut.kb", "cut.total", "--operand", "x=f32[1000001]")
    assert first["grid"] == [7813, 1, 1] and second["grid"] == [1, 1, 1]
    kernels = [kernel for op in kbundle("inspect", tmp_path / "cut.kb", "--json").json["ops"] for variant in op["variants"]
               for kernel in variant["kernels"]]
    # All of it is dynamic: what CUDA reserves of each block, with which a cubin's section begins, does not count.
    assert {kernel["static_shared"] for kernel in kernels} == {0}


@WITH_CUTE
def test_a_tensor_that_may_be_null_needs_no_kernel_of_its_own_where_it_is_absent(kbundle, library, tmp_path):
    again = '"y", { tensor = "again", shape = ["twice ? 1 : 0"], null = true }] }]'
    edit(library / "cut.toml", ('results   = { y = "f32[1]" }', 'attributes = { twice = { type = "bool", default = false } }\n'
                                'results    = { y = "f32[1]", again = { shape = "f32[1]", when = "twice" } }'),
         ('"y"] }]', again), ("tolerance = { y = 1e-5 }", "tolerance = { y = 1e-5, again = 1e-5 }"))
    edit(library / "total.py", ("last_kernel(partial: cute.Tensor, y: cute.Tensor,",
                                "last_kernel(partial: cute.Tensor, y: cute.Tensor, again: cute.Tensor,"),
         ("        y[0] = total\n", "        y[0] = total\n        if cute.size(again) > 0:\n            again[0] = total\n"),
         ("y: cute.Tensor, threads: cutlass.Constexpr, stream", "y: cute.Tensor, again: cute.Tensor, threads: cutlass.Constexpr, stream"),
         ("last_kernel(partial, y, threads)", "last_kernel(partial, y, again, threads)"),
         ("total(x, partial, y, *,", "total(x, partial, y, again, *,"), ("(x, partial, y, THREADS)", "(x, partial, y, again, THREADS)"))
    done = build(kbundle, library, tmp_path / "cut.kb")
    assert done.code == 0, done.err
    for twice in (False, True):
        _, second = launch(kbundle, tmp_path / "cut.kb", "cut.total", "--operand", "x=f32[1000]", "--attr", f"twice={str(twice).lower()}")
        told = {field["text"]: field for field in second["args"][2]["fields"]}
        assert told["again"]["at"] == ({"result": "again", "offset": 0} if twice else None)
        assert told["u32(twice ? 1 : 0)"]["value"] == int(twice)
    edit(library / "cut.toml", (", null = true", ""))
    done = build(kbundle, library, tmp_path / "cut.kb")
    assert done.code != 0 and "whether 'again' is there decides what is compiled" in done.err and "null = true" in done.err, done.err


@WITH_CUTE
def test_where_the_address_is_odd_or_tiles_do_not_fit_the_other_variant_is_chosen(kbundle, library, tmp_path):
    assert build(kbundle, library, tmp_path / "cut.kb").code == 0
    problem = ["cut.scale", "--operand", "x=bf16[300,512]", "--attr", "K=200", "--target", "sm_90a"]
    assert "chosen     cut.scale/tiles" in kbundle("explain", tmp_path / "cut.kb", *problem).out
    assert "chosen     cut.scale/elements" in kbundle("explain", tmp_path / "cut.kb", *problem, "--align", "2").out


@WITH_CUTE
def test_the_bundle_says_under_which_licence_the_compiler_is(kbundle, library, tmp_path):
    assert build(kbundle, library, tmp_path / "cut.kb").code == 0
    said = kbundle("inspect", tmp_path / "cut.kb").out
    assert "nvidia-cutlass-dsl 4.8.1 sha256:" in said
    assert "nvidia-cutlass-dsl licence NVIDIA Software License Agreement, of 4.8.1" in said


@WITH_CUTE
def test_a_kernel_compiled_by_itself_is_the_builds(kbundle, library, shared_cache, tmp_path):
    assert build(kbundle, library, tmp_path / "cut.kb").code == 0
    unit = kbundle("build", library, "--plan", "--target", "sm_90a").json["units"][0]
    assert unit["compiler"] == "cute" and unit["stored"] and "KBUNDLE_PYTHON" in unit["environment"]
    done = kbundle(*unit["command"][1:], "--cache", tmp_path / "own", "--json")
    assert done.code == 0 and done.json["compiled"], done.err
    place = f"v1/objects/{unit['key'][:2]}/{unit['key']}"
    assert (tmp_path / "own" / place).read_bytes() == (shared_cache / place).read_bytes()


@WITH_CUTE
def test_a_tuning_record_of_what_was_learned_decides(kbundle, library, tmp_path):
    problem = ["cut.scale", "--operand", "x=bf16[300,512]", "--attr", "K=200", "factor=0.5", "--target", "sm_90a"]
    records = ROOT / "kernels/softmax/tuning/nvidia-h200.jsonl"
    record = json.loads(records.read_text().splitlines()[0])
    slower = "cut.scale/elements[T=bf16]@sm_90a"
    record |= {"op": "cut.scale", "problem": {"operands": {"x": "bf16[300,512]"}, "attributes": {"K": 200, "factor": 0.5}},
               "winner": slower, "default": slower, "candidates": [record["candidates"][0] | {"variant": slower, "fingerprint": "0" * 16}]}
    (library / "tuning").mkdir()

    def built():
        (library / "tuning/h200.jsonl").write_text(json.dumps(record) + "\n")
        done = build(kbundle, library, tmp_path / "cut.kb", "--explain")
        assert done.code == 0, done.err
        return done

    stale = built()
    assert stale.json["stale_records"] == 1
    record["candidates"][0]["fingerprint"] = re.search(r"\(fingerprint (\w+), was 0", stale.err).group(1)
    assert built().json["stale_records"] == 0
    assert f"chosen     {slower}" in kbundle("explain", tmp_path / "cut.kb", *problem).out


@WITH_CUTE
def test_other_targets_are_left_out_aloud(kbundle, library, tmp_path):
    edit(library / "cut.toml", ('targets  = ["sm_80", "sm_90a"]\n', ""))
    done = kbundle("build", library, "-o", tmp_path / "cut.kb", "--target", "sm_80,sm_100f,portable", "--dry-run", "--explain")
    assert done.code == 0 and "out of sm_100f: CuTe DSL's kernels are made for one GPU" in done.out + done.err


TILES = 'args = [{ tensor = "x", shape = ["R", "K"], strides = ["W", "1"] }, "y", "f32(factor)"] }]\n\n# Any'


@WITH_CUTE
@pytest.mark.parametrize("file, change, wanted", [
    ("cut.toml", (TILES, TILES.replace(', "f32(factor)"', "")),
     ["cut.toml:23:", "'scale' cannot be called with what the manifest passes: missing a required argument: 'factor'", "^~~~~"]),
    ("cut.toml", ('cute = "total"', 'cute = "totl"'), ["total.py has no function 'totl'", "total"]),
    ("scale.py", ("return Scale(x.dtype), (", "return ("), ["'scale' returned tuple", "a tuple of its arguments"]),
    ("scale.py", ("staged = memory.allocate_tensor(self.dtype,", "staged = memory.allocate_tensor(self.dtypo,"), ["scale.py:", "dtypo"]),
    ("scale.py", ("class Scale:", "class Scale(:"), ["scale.py:10:", "SyntaxError"]),
    ("scale.py", ("import cutlass\n", "import cutlass\nimport not_there\n"), ["No module named 'not_there'"]),
    ("scale.py", ("import cutlass\n", "import cutlass\nimport os; os.abort()\n"), ["ended with signal 6"]),
    # A `when` that takes what the kernel does not.
    ("cut.toml", ('"align(x) % 16 == 0", ', ""), ["cannot be launched for a problem that the variant takes", "Misaligned", "multiples of"]),
    ("cut.toml", ('"W * sizeof(T) % 16 == 0", ', ""), ["cannot be launched for a problem that the variant takes", "the problem is R = "]),
    ("cut.toml", ('"R * W <= 2147483647"', '"R == 3 && R == 4"'), ["no problem was found that the variant takes", "'R == 3 && R == 4'"]),
    # What a record cannot hold.
    ("elements.py", ("block=[THREADS, 1, 1], stream=stream)", "block=[THREADS, 1, 1], stream=stream, cooperative=True)"),
     ["cut.toml:32:", "it wants a cooperative launch"]),
    ("elements.py", ("    count, width", "    cute.printf(\"%d\", cute.size(y))\n    count, width"),
     ["its host code calls", "which a recording does not hold"]),
    ("elements.py", ("scale_kernel(x, y, scale, count,", "scale_kernel(x, y, scale, (count * 40503) ^ (count >> 3),"),
     ["bytes at 0 of parameter 3 of kernel 0 follow no known expression", "a `let` of the variant"]),
    ("elements.py", ("scale_kernel(x, y, scale, count,",
                     "scale_kernel(x, y, scale, cutlass.Int32((x.iterator.toint() >> 8) & 0xFFFF),"),
     ["depends on an address beyond adding an offset to it"]),
], ids=["too_few_arguments", "unknown_function", "returns_nothing", "undefined_name", "syntax", "missing_module", "abort", "misaligned",
        "odd_stride", "no_problem", "cooperative", "host_call", "noise", "address"])
def test_a_mistake_is_one_clear_error(kbundle, library, tmp_path, file, change, wanted):
    edit(library / file, change)
    done = build(kbundle, library, tmp_path / "cut.kb", "--keep-going")
    assert done.code != 0 and not (tmp_path / "cut.kb").exists()
    for words in wanted:
        assert words in done.err, done.err


@WITH_CUTE
def test_what_the_search_does_not_find_a_let_says(kbundle, library, tmp_path):
    edit(library / "elements.py", ("scale_kernel(x, y, scale, count,", "scale_kernel(x, y, scale, count + (count % 7) * 9,"),
         ("count: cutlass.Int32, width", "odd: cutlass.Int32, width"), ("if element < count:", "if element < cute.size(y) and odd >= 0:"))
    done = build(kbundle, library, tmp_path / "cut.kb")
    assert done.code != 0 and "follow no known expression" in done.err, done.err
    when = 'when     = ["R * W <= 1073741824"]'
    edit(library / "cut.toml", (when, when + '\nlet      = { ODD = "R * K + R * K % 7 * 9" }'))
    assert build(kbundle, library, tmp_path / "cut.kb").code == 0


def test_without_cute_dsl_the_error_says_what_to_install(kbundle, library, tmp_path):
    import venv
    venv.create(tmp_path / "bare", with_pip=False)
    kbundle.environment["KBUNDLE_PYTHON"] = str(tmp_path / "bare/bin/python")
    done = kbundle("build", library, "-o", tmp_path / "cut.kb", "--target", "sm_90a")
    assert done.code != 0
    assert 'variants with provider = "cute" need nvidia-cutlass-dsl==4.8.1' in done.err and "pip install" in done.err


@WITH_CUTE
def test_a_package_of_another_version_is_named_with_the_command_that_installs_the_right_one(kbundle, tmp_path):
    attention = shutil.copytree(ROOT / "kernels/attention", tmp_path / "attention")
    edit(attention / "fa4.py", ('"flash-attn-4": "4.0.0b36"', '"flash-attn-4": "3.9"'))
    done = kbundle("build", attention, "--target", "sm_90a", "--only",
                   "attention.sdpa_forward/fa4[T=bf16,HEAD=64,HEADV=64,MASK=0,BLOCK=64]@sm_90a")
    assert done.code != 0 and "need flash-attn-4==3.9, and this Python has " in done.err and "pip install --no-deps" in done.err


@WITH_CUTE
def test_what_is_compiled_serves_every_step_that_passes_the_like(kbundle, library, tmp_path):
    """Tensors of other names and a second variant change nothing for the compiler: it is asked once for each point."""
    asked = tmp_path / "asked"
    edit(library / "total.py", ("import cutlass\n", f"import cutlass\n\ndef note():\n    open({str(asked)!r}, 'a').write('x')\n"),
         ("stream):\n", "stream):\n    note()\n"))
    again = """
[[op.total.variant]]
name      = "again"
extends   = "two_kernels"
workspace = { elsewhere = "f32[BLOCKS]" }
steps     = [{ cute = "total", args = ["x", { tensor = "elsewhere", shape = ["BLOCKS"] }, "y"] }]
"""
    (library / "cut.toml").write_text((library / "cut.toml").read_text() + again)
    done = build(kbundle, library, tmp_path / "cut.kb", "-j", "1")
    assert done.code == 0, done.err
    objects = {variant["id"].split("/")[1]: variant["kernels"][0]["blob"] for op in kbundle("inspect", tmp_path / "cut.kb", "--json").json["ops"]
               for variant in op["variants"] if op["name"] == "cut.total"}
    points = {name.partition("[")[2] for name in objects}
    assert len(points) == 4 and asked.read_text() == "x" * len(points)
    assert all(objects[f"two_kernels[{point}"] == objects[f"again[{point}"] for point in points)


@WITH_CUTE
def test_host_code_may_size_a_grid_by_the_multiprocessors_and_nothing_else(kbundle, library, tmp_path):
    edit(library / "cut.toml", ('"y"] }]', '"y", "sm_count"] }]'))
    edit(library / "total.py", ("y: cute.Tensor, threads: cutlass.Constexpr, stream",
                                "y: cute.Tensor, most: cutlass.Int32, threads: cutlass.Constexpr, stream"),
         ("grid=[cute.size(partial), 1, 1]", "grid=[cutlass.min(most, cutlass.Int32(cute.size(partial))), 1, 1]"),
         ("total(x, partial, y, *,", "total(x, partial, y, most, *,"), ("(x, partial, y, THREADS)", "(x, partial, y, most, THREADS)"))
    done = build(kbundle, library, tmp_path / "cut.kb")
    assert done.code == 0, done.err
    few, many = (launch(kbundle, tmp_path / "cut.kb", "cut.total", "--operand", f"x=f32[{size}]")[0]["grid"] for size in (1000, 1000001))
    assert few == [8, 1, 1] and 1 <= many[0] <= 132 and many[1:] == [1, 1]
    edit(library / "total.py", ("last_kernel(partial: cute.Tensor, y: cute.Tensor,",
                                "last_kernel(partial: cute.Tensor, most: cutlass.Int32, y: cute.Tensor,"),
         ("        y[0] = total\n", "        y[0] = total * most\n"), ("last_kernel(partial, y, threads)", "last_kernel(partial, most, y, threads)"))
    done = build(kbundle, library, tmp_path / "cut.kb")
    assert done.code != 0 and "follow no known expression" in done.err, done.err
