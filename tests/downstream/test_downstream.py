"""A library outside the tree builds with `kbundle build` and runs from JAX, whatever its ops need.

The library is copied away from the tree first, so nothing in it can lean on kbundle's folders.
KB_DOWNSTREAM_BUNDLE names a bundle built elsewhere; then nothing is built here (the GPU check does so).
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

LIBRARY = pathlib.Path(__file__).resolve().parent / "library"


@pytest.fixture(scope="module")
def bundle_path(request, tmp_path_factory):
    given = os.environ.get("KB_DOWNSTREAM_BUNDLE")
    if given:
        return given
    command = request.getfixturevalue("command")
    away = tmp_path_factory.mktemp("away")
    shutil.copytree(LIBRARY, away / "library")
    built = subprocess.run([command, "build", "library", "-o", "demo.kb"], cwd=away,
                           capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return str(away / "demo.kb")


@pytest.fixture(scope="module")
def bundle(bundle_path):
    import kbundle
    return kbundle.open(bundle_path)


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("demo_reference", LIBRARY / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(bundle, op, *operands, **attributes):
    import kbundle.jax as kbj
    return jax.jit(lambda *a: kbj.call(bundle, op, *a, **attributes))(*operands)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found, wanted, relative=1e-6):
    scale = max(1.0, float(np.max(np.abs(wanted)))) if np.size(wanted) else 1.0
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=0, atol=relative * scale)


def test_in_out_operand_is_updated_and_the_callers_array_is_kept(bundle, reference):
    y, x = normal(4099), normal(4099, seed=1)
    given = jnp.asarray(y)
    close(call(bundle, "demo.accumulate", given, x, alpha=0.5), reference.accumulate(y, x, alpha=0.5))
    close(given, y, 0)


def test_two_results_come_in_the_manifests_order(bundle, reference):
    x = np.random.default_rng(3).integers(-1000, 1000, (2, 3, 129)).astype(np.int32)
    low, high = call(bundle, "demo.bounds", x)
    wanted_low, wanted_high = reference.bounds(x)
    assert (np.asarray(low) == wanted_low).all() and (np.asarray(high) == wanted_high).all()
    assert low.shape == (2, 3) and low.dtype == jnp.int32


@pytest.mark.parametrize("taps", [(0.5,), (0.5, 0.25, -0.125), tuple(np.linspace(-1, 1, 8).tolist())])
def test_array_attribute_of_any_length_arrives_whole(bundle, reference, taps):
    x = normal(1001)
    close(call(bundle, "demo.filter", x, taps=list(taps)), reference.filter(x.astype(np.float64), taps=taps), 1e-5)


def test_array_attribute_too_long_is_refused_by_name(bundle):
    with pytest.raises(Exception, match="taps"):
        call(bundle, "demo.filter", normal(10), taps=[1.0] * 9)


def test_op_without_operands_takes_its_shape_from_an_attribute(bundle, reference):
    found = call(bundle, "demo.ramp", count=1000, first=-7)
    assert (np.asarray(found) == reference.ramp(count=1000, first=-7)).all()


def test_op_over_nothing_needs_no_call(bundle):
    assert call(bundle, "demo.ramp", count=0).shape == (0,)


def test_steps_talk_through_the_workspace(bundle, reference):
    x = np.random.default_rng(4).integers(0, 256, 5003).astype(np.uint8)
    for _ in range(2):  # a workspace that still holds the last run's counts would show the second time
        close(call(bundle, "demo.histogram_share", x), reference.histogram_share(x))


@pytest.mark.parametrize("with_bias", [False, True])
def test_optional_operand_may_be_absent(bundle, reference, with_bias):
    x, gain, bias = normal(5, 70), normal(70, seed=1), normal(70, seed=2) if with_bias else None
    operands = (x, gain, bias) if with_bias else (x, gain, None)
    import kbundle.jax as kbj
    arrays = [a for a in operands if a is not None]
    found = jax.jit(lambda *a: kbj.call(bundle, "demo.affine", *a, *[None] * (3 - len(a))))(*arrays)
    close(found, reference.affine(x, gain, bias))


@pytest.mark.parametrize("shape", [(300, 132), (5, 7), (1, 4), (513, 4096)])
def test_copy_engine_and_its_substitute_do_both_steps(bundle, shape):
    x = normal(*shape)
    close(call(bundle, "demo.plus_two", x), x.astype(np.float64) + 2)


def test_hopper_variant_is_chosen_where_it_is_legal(bundle):
    chosen = lambda shape, target: bundle.explain("demo.plus_two", f"f32{list(shape)}", target=target)["chosen"]
    assert "copy_engine" in chosen((300, 132), "sm_90a")
    assert "copy_then_add" in chosen((5, 7), "sm_90a")
    assert "copy_then_add" in chosen((300, 132), "sm_80")


def test_every_host_variant_is_right_when_forced(bundle_path):
    from conformance import devices, runner
    conformance = runner.Conformance(bundle_path, devices.Host(), [LIBRARY])
    outcomes = [conformance.run(op, variant) for op in conformance.ops()
                for variant, reason in conformance.variants(op) if reason is None]
    assert len(outcomes) >= 7
    assert not [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
