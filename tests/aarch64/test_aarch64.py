"""Promise: one bundle serves x86-64 and 64-bit Arm. Host kernels are compiled for armv8-a by a cross compiler, each loader takes its own and
never the other's, and the library, compiled for Arm and run by qemu, computes what the one for x86-64 does.

The library for Arm is made by scripts/aarch64; without it, a cross compiler or qemu, what needs them is skipped by name."""

import json
import os
import pathlib
import shutil
import subprocess

import ml_dtypes  # noqa: F401  its names are dtypes of NumPy
import numpy as np
import pytest

from kbundle import _dtypes, _spec
from sharding import problems

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = ROOT / "build/aarch64"
SYSROOT = pathlib.Path("/usr/aarch64-linux-gnu")
# Its own C library, also where the system has one for Arm beside it: one's loader with the other's library hangs in a first thread.
QEMU = ["qemu-aarch64", "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={SYSROOT}/lib"]
SOURCES = [ROOT / "tests/downstream/library", ROOT / "kernels"]
I32, F32 = 7, 12  # dtypes of kb_tensor
KINDS = ["bool", "int", "float", "text", "ints", "floats"]  # of _spec, as run_op calls them

pytestmark = pytest.mark.skipif(shutil.which("aarch64-linux-gnu-g++") is None,
                                reason="no aarch64-linux-gnu-g++ here: scripts/setup --aarch64 installs it")


def run(*words, code=0, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=900, **more)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def bundle(command, tmp_path_factory):
    """For both kinds of CPU."""
    path = tmp_path_factory.mktemp("both") / "both.kb"
    run(command, "build", *SOURCES, "-o", path, "--target", "x86-64-v2,armv8-a", "--provider", "host")
    return path


@pytest.fixture(scope="module")
def small(command, tmp_path_factory):
    """{target: a bundle for it alone}."""
    folder, made = tmp_path_factory.mktemp("one"), {}
    for target in ("x86-64-v2", "armv8-a"):
        made[target] = folder / f"{target}.kb"
        run(command, "build", SOURCES[0], "-o", made[target], "--target", target)
    return made


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """{architecture: what runs run_op there}."""
    folder, made = tmp_path_factory.mktemp("programs"), {}
    for architecture, compiler, library in (("x86-64", "cc", ROOT / "build/release"), ("armv8-a", "aarch64-linux-gnu-gcc", LIBRARY)):
        if architecture == "armv8-a":
            if not (library / "libkbundle.so").exists():
                pytest.skip("no build/aarch64/libkbundle.so: run scripts/aarch64, which makes it and runs this test")
            if shutil.which("qemu-aarch64") is None:
                pytest.skip("no qemu-aarch64 here: scripts/setup --aarch64 installs it")
        program = folder / architecture
        run(compiler, "-O1", "-Wall", HERE / "run_op.c", "-I", ROOT / "ffi/c/include", library / "libkbundle.so", f"-Wl,-rpath,{library}",
            "-o", program)
        made[architecture] = [*QEMU, program] if architecture == "armv8-a" else [program]
    return made


def written(value):
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(int(value) if isinstance(value, bool) else value)


def call(program, bundle, op, folder, operands, attributes):
    """(variant, results): run_op's, of a kbundle.Bundle."""
    folder.mkdir(parents=True)
    words = []
    for index, operand in enumerate(operands):
        if operand is not None:
            np.asarray(operand).tofile(folder / f"operand{index}")
        described = _spec.operand(operand)
        words.append(f"{_dtypes.dtype_number(described[0])}:{','.join(map(str, described[1]))}" if described else "-")
    given = [f"{name}={KINDS[kind]}:{written(value)}" for name, kind, value in bundle.normal_attributes(op, attributes)]
    in_place = [f"{index}={result.alias}" for index, result in enumerate(bundle.op(op).results) if result.alias >= 0]
    variant, *lines = run(*program, bundle.path, op, folder, *given, "--", *words, "--", *in_place).splitlines()
    names = {number: name for name, (number, _) in _dtypes._DTYPES.items()}
    results = {}
    for index, dtype, *dims in (map(int, line.split()) for line in lines):
        results[index] = np.fromfile(folder / f"result{index}", _dtypes.LONG_NAMES[names[dtype]]).reshape(dims)
    return variant, results


def test_code_and_rows_carry_the_architecture(command, bundle):
    described = json.loads(run(command, "inspect", "--json", bundle))
    assert {"x86-64-v2", "armv8-a"} <= set(described["targets"])
    run(command, "verify", bundle)


def test_a_choice_for_the_one_is_never_the_others_code(small, bundle):
    import kbundle
    both = kbundle.open(bundle)
    for target, other in (("x86-64-v2", "armv8-a"), ("armv8-a", "x86-64-v2")):
        said = both.explain("demo.bounds", "f32[4,33]", target=target)
        assert said["chosen"].endswith(f"@{target}")
        assert all(other not in one["id"] for one in said["candidates"] if one["legal"])
        alone = kbundle.open(small[other], f"alone_{other}")
        assert alone.explain("demo.bounds", "f32[4,33]", target=target)["chosen"] is None


def test_without_a_cross_compiler_the_build_says_what_to_install(command, tmp_path):
    environment = dict(os.environ, KBUNDLE_CXX_ARM=str(tmp_path / "none"))
    said = run(command, "build", SOURCES[0], "-o", tmp_path / "x.kb", "--target", "armv8-a", code=3, env=environment)
    assert "install g++-aarch64-linux-gnu" in said
    environment["KBUNDLE_CXX_ARM"] = shutil.which("g++")
    done = subprocess.run([command, "build", str(SOURCES[0]), "-o", str(tmp_path / "x.kb"), "--target", "armv8-a"],
                          env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and not (tmp_path / "x.kb").exists()


def demo():
    random = np.random.default_rng()
    yield "demo.bounds", [random.integers(-999, 999, (2, 3, 129), dtype=np.int32)], {}
    yield "demo.bounds", [random.standard_normal((7, 33)).astype(np.float32)], {}


def whole():
    """Of ops that sharding's problems leave out, and of other sizes and dtypes than theirs."""
    x = problems.random(130, 200)
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
        yield "softmax.scaled_forward", [problems.random(5, 1027).astype(dtype)], dict(scale=0.5)
        yield "norm.rmsnorm_forward", [problems.random(5, 1027).astype(dtype), problems.random(1027).astype(dtype)], {}
        yield "quantize.per_block_transpose", [x.astype(dtype)], dict(out_dtype="e4m3")
    yield "permutation.row_id_map", [np.random.default_rng(0).integers(0, 2, (130, 5), dtype=np.uint8)], {}
    yield "quantize.amax", [x], {}
    yield "quantize.per_tensor_transpose", [x, np.array([3.0], np.float32)], dict(out_dtype="e5m2")
    yield "quantize.per_tile", [x], dict(out_dtype="e4m3")
    yield "quantize.mxfp8", [problems.random(128, 256)], dict(out_dtype="e4m3")


def distance(found, wanted):
    """The largest, in units of the last place of the dtype at the largest value; NaN where one of two has one."""
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    if np.issubdtype(wanted.dtype, np.integer) or wanted.dtype == bool:
        return float(np.abs(one - other).max(initial=0))
    assert (np.isnan(one) == np.isnan(other)).all()
    largest = np.abs(other[np.isfinite(other)]).max(initial=0) or 1.0
    same = (one == other) | np.isnan(other)
    with np.errstate(invalid="ignore"):  # infinities less infinities
        apart = np.where(same, 0, np.abs(one - other)).max(initial=0)
    return float(apart / largest / float(ml_dtypes.finfo(wanted.dtype).eps))


@pytest.mark.parametrize("family", [demo, whole, *problems.FAMILIES], ids=lambda family: family.__name__)
def test_both_compute_the_same(programs, bundle, tmp_path, family):
    import kbundle
    both = kbundle.use(bundle)
    results = 0
    for number, (op, operands, attributes) in enumerate(family()):
        found = {}
        for architecture, program in programs.items():
            variant, found[architecture] = call(program, both, op, tmp_path / f"{number}{architecture}", operands, attributes)
            assert f"@{architecture}" in variant
        assert found["x86-64"].keys() == found["armv8-a"].keys()
        for result, ours in found["x86-64"].items():
            most = 0 if ours.dtype.kind in "iub" else 40 if ours.dtype == np.float32 else 1
            assert distance(found["armv8-a"][result], ours) <= most, (op, attributes, result)
            results += ours.size > 0
    assert results > 0


def test_a_bundle_for_the_other_is_refused_with_what_it_lacks(programs, small, tmp_path):
    for architecture, other in (("x86-64", "armv8-a"), ("armv8-a", "x86-64-v2")):
        folder = tmp_path / architecture
        folder.mkdir()
        np.zeros((2, 3), np.float32).tofile(folder / "operand0")
        said = run(*programs[architecture], small[other], "demo.bounds", folder, "--", f"{F32}:2,3", code=1)
        assert other in said, said
