"""Kernels of NVIDIA Warp build without a GPU, to the same bytes anywhere, and every mistake says what to do."""

import functools
import json
import shutil
import subprocess

import pytest
from cli.python_provider import (asks_for_the_package, builds_the_same_bytes_anywhere, edit,
                                 needs_no_python_when_left_out)
from .conftest import HAS_WARP, LIBRARY, PYTHON, TARGETS

ROOT = LIBRARY.parents[2]


def targets(more):
    return () if "--target" in more else ("--target", TARGETS)


def build(kbundle, library, output, *more, **how):
    return kbundle("build", library, "-o", output, *targets(more), "--json", *more, **{"timeout": 300, **how})


@pytest.mark.with_warp
def test_a_kernel_compiled_by_itself_is_the_builds(kbundle, library, shared_cache, tmp_path):
    assert build(kbundle, library, tmp_path / "sim.kb").code == 0
    plan = kbundle("build", library, "--plan", "--provider", "warp", *targets([])).json
    unit = plan["units"][-1]
    assert unit["compiler"] == "warp" and unit["stored"] and "KBUNDLE_PYTHON" in unit["environment"]
    done = kbundle(*unit["command"][1:], "--cache", tmp_path / "own", "--json")
    assert done.code == 0 and done.json["compiled"], done.err
    place = f"v1/objects/{unit['key'][:2]}/{unit['key']}"
    assert (tmp_path / "own" / place).read_bytes() == (shared_cache / place).read_bytes()


def test_two_folders_and_two_caches_give_the_same_bytes_and_the_second_build_compiles_nothing(kbundle, library):
    builds_the_same_bytes_anywhere(functools.partial(build, kbundle), library, "sim", foreign=(b"/kbundle",))


@pytest.mark.with_warp
def test_what_is_recorded_is_what_warp_makes(kbundle, library, replayed, tmp_path):
    host = ("--name", "sim", "--target", "x86-64-v2")
    assert build(kbundle, library, tmp_path / "made.kb", *host).code == 0
    replay = build(kbundle, library, tmp_path / "replayed.kb", *host, "--cache", tmp_path / "own", "--python", replayed)
    assert replay.code == 0, "run tests/warp/record PYTHON\n" + replay.err

    def objects(path):
        rows = kbundle("inspect", path, "--json").json["ops"]
        return [kernel for op in rows for variant in op["variants"] for kernel in variant["kernels"]]
    assert objects(tmp_path / "made.kb") == objects(tmp_path / "replayed.kb")


@pytest.mark.with_warp
def test_one_source_stands_in_the_bundle_for_gpus_and_cpus(kbundle, library, tmp_path):
    done = build(kbundle, library, tmp_path / "sim.kb")
    assert done.code == 0, done.err
    kernels = {}
    for op in kbundle("inspect", tmp_path / "sim.kb", "--json").json["ops"]:
        for variant in op["variants"]:
            assert variant["provider"] == "warp"
            kernels[variant["id"]] = variant["kernels"]
    assert kernels["sim.react/warp[BLOCK=128]@sm_90a"][0]["threads"] == 128
    assert kernels["sim.react/warp[BLOCK=128]@sm_90a"][0]["symbol"] == "react_cuda_kernel_forward"
    assert kernels["sim.energy_backward/warp@sm_90a"][2]["symbol"] == "energy_cuda_kernel_backward"
    assert kernels["sim.energy_backward/warp@x86-64-v2"][2]["symbol"] == "kb_energy_adjoint"
    assert kernels["sim.turn/warp[T=f64]@x86-64-v2"][0]["symbol"] == "kb_turn_f64"
    assert kbundle("verify", tmp_path / "sim.kb").code == 0


def test_structs_are_filled_for_the_problem_as_warps_own_launcher_fills_them(kbundle, library, tmp_path):
    assert build(kbundle, library, tmp_path / "sim.kb").code == 0

    def launch(target):
        done = kbundle("explain", tmp_path / "sim.kb", "sim.react", "--operand", "u=f32[257,130]", "--target", target, "--json")
        assert done.code == 0, done.err
        return done.json["launch"]["steps"][0]
    step = launch("x86-64-v2")
    assert (step["range"], step["grain"]) == (257 * 130, 4096) and "grid" not in step
    bounds, u, out, k = step["args"]
    assert [field["value"] for field in bounds["fields"]] == [257, 130, 257 * 130]
    assert [field.get("value") for field in u["fields"]] == [None, 257, 130, 130 * 4, 4]
    assert (bounds["bytes"], u["bytes"], k["ctype"]) == (24, 56, "f32") and out["fields"][0]["at"] == {"result": "out", "offset": 0}
    if HAS_WARP:
        on_gpu = launch("sm_90a")
        assert on_gpu["grid"] == [-(-257 * 130 // 128), 1, 1] and on_gpu["block"] == [128, 1, 1] and "range" not in on_gpu
        assert on_gpu["args"] == step["args"]


LAYOUT = """
import ctypes, json, sys
sys.stdout, out = sys.stderr, sys.stdout
from warp._src import types
array = types.array_t
def places(kind):
    return {name: getattr(kind, name).offset for name, _ in kind._fields_} | {"bytes": ctypes.sizeof(kind)}
bounds = [type(types.launch_bounds_t((7,) * n)) for n in (1, 2, 3, 4)]
print(json.dumps([places(array), *map(places, bounds)]), file=out)
"""


@pytest.mark.with_warp
def test_structs_lie_as_warps_own(kbundle, library, tmp_path):
    """What builder/provider/warp/layout.cc writes, against the structs that Warp's launcher fills."""
    said = subprocess.run([PYTHON, "-c", LAYOUT], capture_output=True, text=True, check=True).stdout
    array, *bounds = json.loads(said)
    assert array == {"data": 0, "grad": 8, "shape": 16, "strides": 32, "ndim": 48, "flags": 50, "bytes": 56}
    assert [one["bytes"] for one in bounds] == [24, 24, 32, 32]
    assert build(kbundle, library, tmp_path / "sim.kb", "--target", "x86-64-v2").code == 0

    def args(op, *operands):
        given = [word for operand in operands for word in ("--operand", operand)]
        done = kbundle("explain", tmp_path / "sim.kb", f"sim.{op}", *given, "--target", "x86-64-v2", "--json")
        assert done.code == 0, done.err
        return done.json["launch"]["steps"][-1]["args"]
    for n, passed in ((1, args("square", "y=f32[9]")), (2, args("react", "u=f32[3,4]")), (4, args("mix", "x=f32[2,3,4,5]", "w=u8[5]"))):
        wanted = bounds[n - 1]
        assert passed[0]["bytes"] == wanted["bytes"]
        assert [f["offset"] for f in passed[0]["fields"]] == [*(wanted["shape"] + 4 * i for i in range(n)), wanted["size"]]
        dims, strides = ([array[key] + 4 * i for i in range(n)] for key in ("shape", "strides"))
        assert [f["offset"] for f in passed[1]["fields"]] == [array["data"], *dims, *strides] and passed[1]["bytes"] == array["bytes"]
    adjoint = args("square_backward", "y=f32[9]", "dy_new=f32[9]")
    assert [f["offset"] for f in adjoint[1]["fields"]][:2] == [array["data"], array["grad"]]


def test_code_for_cpus_exports_its_kernel_and_asks_for_no_version_of_the_c_library(kbundle, library, tmp_path):
    assert build(kbundle, library, tmp_path / "sim.kb").code == 0
    asked = {}
    for op in ("integrate", "square"):
        assert kbundle("extract", tmp_path / "sim.kb", f"sim.{op}/warp@x86-64-v2", "-o", tmp_path / f"{op}.so").code == 0
        said = subprocess.run(["readelf", "-W", "--dyn-syms", "--dynamic", "--version-info", tmp_path / f"{op}.so"],
                              capture_output=True, text=True, check=True).stdout
        symbols = [line.split() for line in said.splitlines() if " GLOBAL " in line]
        assert {row[7] for row in symbols if row[6] != "UND"} == {f"kb_{op}", f"kb_{op}_kb_params"}
        asked[op] = ({row[7] for row in symbols if row[6] == "UND"}, "[libm.so.6]" in said)
        assert "GLIBC" not in said and "Version needs" not in said
    assert asked["integrate"] == ({"sinf"}, True) and asked["square"] == (set(), False)


@pytest.mark.with_warp
def test_every_variant_is_right_at_edge_sizes_on_this_cpu(kbundle, library):
    done = kbundle("test", library, "--target", "x86-64-v2", "--json", timeout=300)
    assert done.code == 0, done.out + done.err
    assert done.json["failed"] == 0 and len(done.json["variants"]) == 13


@pytest.mark.with_warp
@pytest.mark.parametrize("change, why, compiled", [
    (("kernels.py", "RATE = wp.constant(0.25)", "RATE = wp.constant(0.5)"), "kernels.py changed", "sim."),
    (("sim.toml", "block_dim = 64", "block_dim = 32"), "flags changed", "sim.row_sums"),
])
def test_a_change_compiles_what_depends_on_it_again(kbundle, library, tmp_path, change, why, compiled):
    assert build(kbundle, library, tmp_path / "sim.kb").code == 0
    edit(library / change[0], change[1:])
    done = kbundle("build", library, "--target", "sm_90a", "--dry-run", "--explain")
    lines = [line for line in (done.out + done.err).splitlines() if line.startswith("compile ")]
    assert lines and all(compiled in line and why in line for line in lines)


MISTAKES = {
    "too_few_arguments": ("sim.toml", ('args = ["vec3(v)", "m", "total"] }]', 'args = ["vec3(v)", "m"] }]'),
                          ["sim.toml:", "energy(v, m, total) takes 3 arguments, the manifest passes 2", "^"]),
    "another_dtype": ("sim.toml", ('args = ["vec3(v)", "m", "total"] }]', 'args = ["v", "m", "total"] }]'),
                      ["sim.toml:", "parameter 'v' of energy(v, m, total) is a 1-dimensional array of f32[3]",
                       "passes a 2-dimensional array of f32", "as in vec3f(x)", "^"]),
    "another_dim": ("sim.toml", ('kernel = "react", dim = ["N", "M"], block_dim', 'kernel = "react", dim = ["N * M"], block_dim'),
                    ["sim.toml:", "kernel 'react' asks wp.tid() for 2 indices, `dim` has 1", "^"]),
    "unknown_kernel": ("sim.toml", ('kernel = "mix"', 'kernel = "mixx"'), ["kernels.py has no kernel 'mixx'", "energy, integrate, mix"]),
    "no_kernel": ("sim.toml", ('kernel = "mix"', 'kernel = "clamped"'), ["'clamped' of kernels.py is no @wp.kernel but Function"]),
    "parts_of_a_sum": ("sim.toml", ('{ kernel = "energy", dim = ["N"], args', '{ kernel = "energy", dim = ["N"], grain = 64, args'),
                       ["sim.toml:", "kernel 'energy' has no parts", "not do atomically on the CPU", "leave out `grain`", "^"]),
    "gradient_in_an_operand": ("sim.toml", ('adjoints = ["dx", "dv", "dq", "none", "none"]', 'adjoints = ["dx", "dv", "q", "none", "none"]'),
                               ["sim.toml:", "the adjoint of 'q' is an operand, and Warp writes to it", "copy it into a result", "^"]),
    "gradient_for_the_array": ("sim.toml", ('args = ["u", "dout", "f32(k)"]', 'args = ["du", "dout", "f32(k)"]'),
                               ["sim.toml:", "the adjoint reads 'u', and the manifest passes its gradient there", "^"]),
    "undefined_name": ("kernels.py", ("y[i, j, k, l] = value\n", "y[i, j, k, l] = valu\n"),
                       ["kernels.py:", "Referencing undefined symbol: valu"]),
    "syntax": ("kernels.py", ("@wp.kernel\ndef mix(", "@wp.kernel\ndef mix(("), ["kernels.py:", "SyntaxError"]),
    "missing_module": ("kernels.py", ("import warp as wp\n", "import warp as wp\nimport not_there\n"), ["No module named 'not_there'"]),
    "generic": ("kernels.py", ("def mix(x: wp.array4d(dtype=float)", "def mix(x: wp.array4d(dtype=__import__('typing').Any)"),
                ["kernel 'mix' is generic: a parameter has the type Any", 'kernel = "name_{T}"']),
    "no_adjoint": ("kernels.py", ("@wp.kernel\ndef energy", "@wp.kernel(enable_backward=False)\ndef energy"),
                   ["kernel 'energy' has no adjoint: it is declared with enable_backward = False"]),
    "tile_matmul": ("kernels.py", ("        total += wp.tile_sum(wp.tile_load(x[i], shape=TILE, offset=k * TILE, storage=\"shared\"))\n",
                                   "        a = wp.tile_load(x, shape=(16, 16))\n        total += wp.tile_sum(wp.tile_matmul(a, a))\n"),
                    ["kernel 'row_sums' multiplies tiles with libmathdx: minutes to compile", "enable_mathdx_gemm", "cublaslt"]),
    "struct": ("kernels.py", ("def mix(x: wp.array4d(dtype=float), w: wp.array(dtype=wp.uint8)",
                              "@wp.struct\nclass S:\n    a: float\n\n\n@wp.kernel\ndef mix(x: wp.array4d(dtype=float), w: wp.array(dtype=S)"),
               ["parameter 'w' is a struct of Warp, which kbundle does not pass", "sim.toml:"]),
    "native_compiler": ("kernels.py", ("@wp.kernel\ndef mix",
                                       "@wp.func_native('return a +* 1;')\ndef bad(a: float) -> float: ...\n\n\n@wp.kernel\ndef mix"),
                        ["build failed", "error:"]),
    "abort": ("kernels.py", ("import warp as wp\n", "import warp as wp\nimport os; os.abort()\n"), ["ended with signal 6"]),
    "exit": ("kernels.py", ("import warp as wp\n", "import warp as wp\nimport sys; sys.exit(3)\n"), ["ended with exit code 3"]),
    "hang": ("kernels.py", ("import warp as wp\n", "import warp as wp\nwhile True: pass\n"), ["stopped after 8 s", "KBUNDLE_COMPILE_TIMEOUT"]),
}


@pytest.mark.with_warp
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_clear_error_with_a_command_that_shows_it(kbundle, library, tmp_path, mistake):
    file, change, wanted = MISTAKES[mistake]
    edit(library / file, change)
    if mistake == "native_compiler":
        edit(library / file, ("    y[i, j, k, l] = value\n", "    y[i, j, k, l] = bad(value)\n"))
    if mistake == "struct":
        edit(library / file, ("@wp.kernel\n@wp.struct", "@wp.struct"), ("float(w[l])", "w[l].a"))
    limit = {"KBUNDLE_COMPILE_TIMEOUT": "8"} if mistake == "hang" else {}
    done = build(kbundle, library, tmp_path / "sim.kb", "--jobs", "1", env=limit)
    assert done.code == 1 and not (tmp_path / "sim.kb").exists()
    missing = [part for part in wanted if part not in done.err]
    assert not missing, f"{missing} not in:\n{done.err}"
    assert "to see it again: kbundle build" in done.err and "--only" in done.err
    assert str(tmp_path / "home") not in done.err and "Traceback" not in done.err


def test_warp_missing_or_of_another_version_is_exit_code_3_and_says_what_to_install(kbundle, library):
    asks_for_the_package(kbundle, functools.partial(build, kbundle), library, "Warp", "warp-lang", "1.19.0", older="1.9.0")


def test_providers_left_out_need_no_warp(kbundle, library):
    needs_no_python_when_left_out(functools.partial(build, kbundle), library)


@pytest.mark.with_warp
def test_the_example_of_the_page_of_manifests_compiles(kbundle, tmp_path):
    page = (ROOT / "builder/MANIFEST.md").read_text()
    block = page[page.index("\n## Warp\n"):].split("```toml\n")[1].split("```")[0]
    frames = ROOT / "tests/readme/frames"
    for name in ("particles.py", "scale_host.cc"):
        shutil.copy(frames / name, tmp_path)
    (tmp_path / "page.toml").write_text((frames / "warp_1.toml").read_text().replace("# @BLOCK@\n", block))
    done = kbundle("build", tmp_path / "page.toml", "-o", tmp_path / "page.kb", "--target", "sm_90a,x86-64-v2", "--json")
    assert done.code == 0 and done.json["variants"] == 3, done.err + done.out


def test_what_is_not_recorded_says_how_to_record_it(kbundle, library, replayed, tmp_path):
    edit(library / "kernels.py", ("RATE = wp.constant(0.25)", "RATE = wp.constant(0.75)"))
    done = build(kbundle, library, tmp_path / "sim.kb", "--target", "x86-64-v2", "--cache", tmp_path / "own", "--python", replayed)
    assert done.code == 1 and "no answer is recorded" in done.err and "tests/warp/record" in done.err
