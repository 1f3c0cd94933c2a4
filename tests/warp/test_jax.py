"""A library of Warp kernels outside the tree runs from JAX, with gradients, without Warp: equal to Warp's own results on the CPU
bit for bit, and to the float64 reference within the manifest's tolerance.

KB_WARP_BUNDLE names a bundle built elsewhere, and KB_WARP_DEVICE = cuda:0 Warp's device for it: section warp_ops of scripts/gpu_check
runs this very file. There sums by atomics come in any order, so they are close and not equal.
"""

import importlib.util
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from .conftest import HERE, LIBRARY, PYTHON

K, DT, GRAVITY = 0.2, 0.02, (0.5, -1.0, -9.81)
N, SHAPE = 1003, (257, 130)
RELATIVE = 4e-6
DEVICE = os.environ.get("KB_WARP_DEVICE", "cpu")


@pytest.fixture(scope="module")
def sim(bundle_path):
    """op, operands -> results, inside jit."""
    import kbundle
    import kbundle.jax as kbj
    bundle = kbundle.open(bundle_path)
    return lambda op, *operands, **attributes: jax.jit(lambda *a: kbj.call(bundle, "sim." + op, *a, **attributes))(*operands)


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("sim_reference", LIBRARY / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def given():
    random = np.random.default_rng(7)

    def some(*shape):
        return random.standard_normal(shape).astype(np.float32)
    q = some(N, 4)
    return {"u": some(*SHAPE), "dout": some(*SHAPE), "k": np.float32(K), "x": some(N, 3), "v": some(N, 3),
            "q": q / np.linalg.norm(q, axis=1, keepdims=True), "dx_new": some(N, 3), "dv_new": some(N, 3), "dt": np.float32(DT),
            "gravity": np.array(GRAVITY, np.float32), "m": random.uniform(1, 2, N).astype(np.float32), "dtotal": some(1)}


@pytest.fixture(scope="module")
def found(sim, given):
    """By the bundle: what own_results.py makes by Warp."""
    g = given
    motion = {"dt": DT, "gravity": list(GRAVITY)}
    out = {"out": sim("react", g["u"], k=K), "du": sim("react_backward", g["u"], g["dout"], k=K)}
    out["x_new"], out["v_new"] = sim("integrate", g["x"], g["v"], g["q"], **motion)
    out["dx"], out["dv"], out["dq"] = sim("integrate_backward", g["x"], g["v"], g["q"], g["dx_new"], g["dv_new"], **motion)
    out["total"] = sim("energy", g["v"], g["m"])
    out["dv_energy"], out["dm"] = sim("energy_backward", g["v"], g["m"], g["dtotal"])
    return {name: np.asarray(values) for name, values in out.items()}


def close(found, wanted, relative=RELATIVE):
    scale = max(1.0, float(np.max(np.abs(wanted))))
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=0, atol=relative * scale)


@pytest.mark.with_warp
def test_results_and_gradients_are_warps_own_bit_for_bit(found, given, tmp_path):
    np.savez(tmp_path / "given.npz", **given)
    done = subprocess.run([PYTHON, HERE / "own_results.py", LIBRARY, tmp_path / "given.npz", tmp_path / "own.npz", DEVICE],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    own = np.load(tmp_path / "own.npz")
    assert set(own) == set(found)
    any_order = set() if DEVICE == "cpu" else {"total", "du"}
    for name in any_order:
        close(found[name], np.float64(own[name]), 2e-5)
    different = {name: int((own[name].view(np.int32) != found[name].view(np.int32)).sum()) for name in set(own) - any_order}
    assert not any(different.values()), different


def test_results_and_gradients_are_the_references(found, given, reference):
    g = {name: np.float64(values) for name, values in given.items()}
    motion = {"dt": g["dt"], "gravity": g["gravity"]}
    wanted = {"out": reference.react(g["u"], k=g["k"]), "du": reference.react_backward(g["u"], g["dout"], k=g["k"]),
              "total": reference.energy(g["v"], g["m"])}
    wanted["x_new"], wanted["v_new"] = reference.integrate(g["x"], g["v"], g["q"], **motion)
    wanted["dx"], wanted["dv"], wanted["dq"] = reference.integrate_backward(g["x"], g["v"], g["q"], g["dx_new"], g["dv_new"], **motion)
    wanted["dv_energy"], wanted["dm"] = reference.energy_backward(g["v"], g["m"], g["dtotal"])
    assert set(wanted) == set(found)
    for name, values in wanted.items():
        close(found[name], values, 2e-5 if name == "total" else RELATIVE)


def in_jax(x, v, q, m):
    """The kinetic energy after one step, as jnp would have it: two functions that are differentiated by JAX itself."""
    x1, y1, z1, w1 = jnp.moveaxis(q, -1, 0)
    push = jnp.stack([jnp.sin(x[:, 0]), jnp.ones(len(x)), jnp.zeros(len(x))], -1)
    axis = jnp.stack([x1, y1, z1], -1)
    c, d = 2 * w1 * w1 - 1, 2 * jnp.sum(axis * push, -1)
    turned = push * c[:, None] + axis * d[:, None] + 2 * w1[:, None] * jnp.cross(axis, push)
    a = jnp.array(GRAVITY) + turned - 0.1 * jnp.sum(v * v, -1, keepdims=True) * v
    after = v + DT * a
    return 0.5 * jnp.sum(m * jnp.sum(after * after, -1)), x + DT * v + 0.5 * DT * DT * a


def test_jax_differentiates_through_a_chain_of_kernels(sim, given):
    """custom_vjp of each op by its adjoint kernel; in place operands are copied by JAX, so x and v are as before."""
    motion = {"dt": DT, "gravity": list(GRAVITY)}

    @jax.custom_vjp
    def integrate(x, v, q):
        return tuple(sim("integrate", x, v, q, **motion))

    integrate.defvjp(lambda x, v, q: (integrate(x, v, q), (x, v, q)),
                     lambda saved, d: tuple(sim("integrate_backward", *saved, *d, **motion)))

    @jax.custom_vjp
    def energy(v, m):
        return sim("energy", v, m)

    energy.defvjp(lambda v, m: (energy(v, m), (v, m)), lambda saved, d: tuple(sim("energy_backward", *saved, d)))

    def loss(x, v, q, m):
        x, v = integrate(x, v, q)
        return energy(v, m)[0] + jnp.sum(x * x)

    def wanted(x, v, q, m):
        kinetic, x = in_jax(x, v, q, m)
        return kinetic + jnp.sum(x * x)
    operands = [jnp.asarray(given[name]) for name in ("x", "v", "q", "m")]
    for mine, jaxs in zip(jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*operands), jax.grad(wanted, (0, 1, 2, 3))(*operands)):
        close(mine, np.asarray(jaxs), 2e-5)
    assert (np.asarray(operands[0]) == given["x"]).all() and (np.asarray(operands[1]) == given["v"]).all()


def test_what_flowed_into_an_overwritten_value_is_gone(sim):
    """y = y * y: 1 + 2 y would be the gradient of an adjoint that is added to and not cleared."""
    y, flows = np.linspace(-2, 2, 1001, dtype=np.float32), np.full(1001, 3, np.float32)
    close(sim("square", y), np.float64(y) ** 2, 1e-7)
    close(sim("square_backward", y, flows), 6 * np.float64(y), 1e-7)


def test_matrices_dims_strides_and_tiles(sim, reference):
    random = np.random.default_rng(1)
    m, x = random.uniform(0.5, 2, (7, 33, 2, 2)).astype(np.float32), random.uniform(0.5, 2, (7, 33, 2)).astype(np.float32)
    close(sim("turn", m, x), reference.turn(np.float64(m), np.float64(x)), 1e-6)
    x4, w = random.standard_normal((3, 1, 7, 2)).astype(np.float32), random.integers(0, 255, 2).astype(np.uint8)
    close(sim("mix", x4, w, shift=11, negate=True), reference.mix(np.float64(x4), np.float64(w), shift=11, negate=True), 1e-6)
    x2 = random.standard_normal((9, 256)).astype(np.float32)
    close(sim("row_sums", x2), reference.row_sums(np.float64(x2)), 2e-6)


def test_nothing_to_do_is_done(sim):
    assert sim("react", np.zeros((1, 1), np.float32)).shape == (1, 1)
    assert float(sim("energy", np.zeros((0, 3), np.float32), np.zeros(0, np.float32))[0]) == 0


def test_warp_was_not_imported():
    assert "warp" not in sys.modules
