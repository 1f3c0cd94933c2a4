"""Promise: kbj.mlp with a gated activation is two products and the formula between them, with gradients, under every transform and on several
devices; with a recipe the same of what its FP8 codes stand for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P
from jax.test_util import check_grads

import kbundle.jax as kbj

GATES = {"swiglu": jax.nn.silu, "geglu": jax.nn.gelu, "reglu": jax.nn.relu}
each_gate = pytest.mark.parametrize("activation", GATES)
STATE = kbj.ScalingState(jnp.asarray([[0, 2.0, 8.0]] * 2), jnp.full(2, 56.0), jnp.asarray([0, 1.0, 4.0]), jnp.float32(57344 / 8))
RECIPES = {"current": (kbj.CurrentScaling(), None), "delayed": (kbj.DelayedScaling(history=3), (STATE, STATE)), "block": (kbj.BlockScaling(), None)}
WIDE = jnp.float32


@pytest.fixture(autouse=True)
def exact_products(platform, kernels):
    with jax.default_matmul_precision("highest"):
        yield


def operands(*rows, inner=32, hidden=48, outer=16, dtype=np.float32, w_dtype=None):
    rng = np.random.default_rng([inner, hidden, outer])
    draw = lambda *shape, scale=1.0, of=dtype: jnp.asarray(scale * rng.normal(size=shape), of)
    w_dtype = w_dtype or dtype
    return (draw(*rows, inner), draw(inner, 2 * hidden, scale=inner ** -0.5, of=w_dtype), draw(2 * hidden, of=w_dtype),
            draw(hidden, outer, scale=max(hidden, 1) ** -0.5, of=w_dtype), draw(outer, of=w_dtype))


def formula(x, w1, b1, w2, b2, activation):
    """In float32, rounded where memory rounds."""
    z = (x.astype(WIDE) @ w1.astype(WIDE) + (0 if b1 is None else b1.astype(WIDE))).astype(x.dtype).astype(WIDE)
    half = w2.shape[0]
    h = (GATES[activation](z[..., :half]) * z[..., half:]).astype(x.dtype).astype(WIDE)
    return (h @ w2.astype(WIDE) + (0 if b2 is None else b2.astype(WIDE))).astype(x.dtype)


def near(found, wanted, tolerance):
    """By the root of the mean square."""
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    found, wanted = np.asarray(found.astype(WIDE), np.float64), np.asarray(wanted.astype(WIDE), np.float64)
    assert np.linalg.norm(found - wanted) <= tolerance * max(np.linalg.norm(wanted), 1e-30)


@each_gate
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float16, 4e-3), (jnp.bfloat16, 3e-2)])
@pytest.mark.parametrize("biases", [True, False])
def test_values_and_gradients(biases, dtype, tolerance, activation):
    x, w1, b1, w2, b2 = operands(3, 7, hidden=50, dtype=dtype)  # rows of no whole vectors
    given = (x, w1, b1, w2, b2) if biases else (x, w1, w2)
    spread = (lambda x, w1, b1, w2, b2: (x, w1, b1, w2, b2)) if biases else (lambda x, w1, w2: (x, w1, None, w2, None))
    (found, pull), (wanted, wanted_pull) = (jax.vjp(jax.jit(lambda *a: f(*spread(*a), activation)), *given) for f in (kbj.mlp, formula))
    near(found, wanted, tolerance)
    for one, other in zip(pull(jnp.ones_like(found)), wanted_pull(jnp.ones_like(wanted))):
        near(one, other, tolerance)


@each_gate
def test_gradients_are_finite_differences(activation):
    given = operands(6, inner=8, hidden=16, outer=8)
    given = given[0] + 0.3, *given[1:]
    if activation == "reglu":  # no differences across its corner
        given = given[0], given[1], given[2] + 4.0, *given[3:]
    check_grads(lambda *a: kbj.mlp(*a, activation), given, order=1, modes=["rev"], eps=1e-2, rtol=1e-2, atol=1e-2)


def test_transforms():
    given = operands(3, 4, 32)
    layer = functools.partial(kbj.mlp, activation="swiglu")
    wanted = formula(*given, "swiglu")
    np.testing.assert_allclose(jax.jit(jax.vmap(layer, (0, *[None] * 4)))(*given), wanted, rtol=1e-5, atol=1e-5)
    slope = lambda f: jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), tuple(range(5))))(*given)
    for one, other in zip(slope(jax.checkpoint(layer)), slope(functools.partial(formula, activation="swiglu"))):
        near(one, other, 1e-5)


@each_gate
def test_no_rows_and_no_features(activation):
    for given in (operands(0), operands(4, inner=16, hidden=0)):
        found, pull = jax.vjp(lambda *a: kbj.mlp(*a, activation), *given)
        near(found, formula(*given, activation), 1e-6)
        for gradient, primal in zip(pull(found), given):
            assert gradient.shape == primal.shape and np.isfinite(gradient).all()


def test_what_waits_for_the_backward_pass_is_no_float32_of_bfloat16_operands():
    given = operands(64, hidden=96, dtype=jnp.bfloat16)
    _, pull = jax.vjp(lambda *a: kbj.mlp(*a, "swiglu"), *given)
    kept = [leaf for leaf in jax.tree.leaves(pull) if hasattr(leaf, "dtype")]
    assert kept and not [leaf.shape for leaf in kept if leaf.dtype == np.float32 and leaf.size > 96]


# ---- with a recipe ----

@each_gate
@pytest.mark.parametrize("recipe, states", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("dtype, w_dtype", [(jnp.bfloat16, np.float32), (np.float32, np.float32), (np.float16, np.float16)])
def test_a_recipe_gives_two_layers_and_the_formula_between(dtype, w_dtype, recipe, states, activation):
    given = operands(5, 9, inner=64, hidden=160, outer=32, dtype=dtype, w_dtype=w_dtype)
    first, second = states or (None, None)

    def layers(x, w1, b1, w2, b2):
        z = kbj.dense(x, w1, b1, recipe=recipe, state=first).astype(WIDE)
        h = (GATES[activation](z[..., :160]) * z[..., 160:]).astype(x.dtype)
        return kbj.dense(h, w2, b2, recipe=recipe, state=second)

    ours = lambda *a: kbj.mlp(*a, activation, recipe=recipe, state=states)
    (found, pull), (wanted, wanted_pull) = (jax.vjp(jax.jit(f), *given) for f in (ours, layers))
    near(found, wanted, 2e-2)  # few codes round the other way: h is not rounded before
    for one, other in zip(pull(found), wanted_pull(found)):
        near(one, other, 3e-2)


def test_the_states_of_both_layers_come_back():
    recipe, states = RECIPES["delayed"]
    given = operands(40, inner=64, hidden=96, outer=32)
    after = jax.grad(lambda states: kbj.mlp(*given, "swiglu", recipe=recipe, state=states).sum())(states)
    x, w1, b1, w2, _ = given
    largest = [np.abs(np.asarray(array)).max() for array in (x, w1, w2)]
    found = [float(after[0].history[0, -1]), float(after[0].history[1, -1]), float(after[1].history[1, -1])]
    np.testing.assert_allclose(found, largest, rtol=1e-6)
    z = x @ w1 + b1
    h = np.abs(np.asarray(jax.nn.silu(z[:, :96]) * z[:, 96:])).max()
    assert abs(float(after[1].history[0, -1]) - h) < 0.1 * h


# ---- on several devices ----

def mesh_of(kind):
    devices = jax.local_devices(backend=jax.devices()[0].platform)
    if len(devices) < 4:
        pytest.skip("needs four devices")
    return Mesh(np.array(devices[:4]).reshape(2, 2), ("data", "model"), axis_types=(kind,) * 2)


def test_devices_of_a_shard_map_divide_the_hidden_features():
    x, w1, b1, w2, _ = operands(8, hidden=64)
    halves = lambda a: jnp.stack(jnp.split(a, 2, -1), -2)  # [.., 2, F]: of both halves each device has its part
    joined = lambda a: a.reshape(*a.shape[:-2], -1)

    def part(x, w1, b1, w2):
        return jax.lax.psum(kbj.mlp(x, joined(w1), joined(b1), w2, None, "swiglu"), "model")

    specs = P("data"), P(None, None, "model"), P(None, "model"), P("model")
    split = jax.jit(jax.shard_map(part, mesh=mesh_of(jax.sharding.AxisType.Auto), in_specs=specs, out_specs=P("data")))
    plain = lambda x, w1, b1, w2: formula(x, joined(w1), joined(b1), w2, None, "swiglu")
    given = x, halves(w1), halves(b1), w2
    near(split(*given), plain(*given), 1e-5)
    slope = lambda f: jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1, 2, 3)))(*given)
    for one, other in zip(slope(split), slope(plain)):
        near(one, other, 1e-5)


@pytest.mark.parametrize("recipe", [None, kbj.BlockScaling()], ids=["plain", "block"])
@pytest.mark.parametrize("kind", [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # what is gathered is gathered
def test_arrays_that_lie_on_several_devices(kind, recipe):
    given = operands(16, hidden=64)
    specs = P("data", None), P(None, "model"), P("model"), P("model", None), P(None)
    call = jax.jit(jax.value_and_grad(lambda *a: (kbj.mlp(*a, "swiglu", recipe=recipe) ** 2).sum(), tuple(range(5))))
    wanted = call(*given)
    with jax.set_mesh(mesh_of(kind)) as mesh:
        there = [jax.device_put(array, jax.NamedSharding(mesh or jax.sharding.get_mesh(), spec)) for array, spec in zip(given, specs)]
        found = call(*there)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4)
    for gradient, other, primal in zip(found[1], wanted[1], there):
        near(gradient, other, 1e-3)
        if kind == jax.sharding.AxisType.Explicit:
            assert gradient.sharding.spec == primal.sharding.spec


@pytest.mark.parametrize("message, call", [
    ("two halves", lambda x, w1, b1, w2, b2: kbj.mlp(x, w1[:, 1:], None, w2, None, "swiglu")),
    ("two halves", lambda x, w1, b1, w2, b2: kbj.mlp(x, w1[:, 1:], None, w2, None, "swiglu", recipe=kbj.BlockScaling())),
    ("do not fit", lambda x, w1, b1, w2, b2: kbj.mlp(x, w1, b1, w1.T, None, "swiglu")),
    ("do not fit", lambda x, w1, b1, w2, b2: kbj.mlp(x, w1, b1, w2, b2, "gelu")),
    ("the bias has shape", lambda x, w1, b1, w2, b2: kbj.mlp(x, w1, b1[:48], w2, b2, "geglu")),
    ("activation is 'swish'.*swiglu", lambda x, w1, b1, w2, b2: kbj.mlp(x, w1, b1, w2, b2, "swish")),
    ("activation is 'swiglu'", lambda x, w1, b1, w2, b2: kbj.dense(x, w1, b1, "swiglu"))])
def test_what_no_gate_takes_is_named(message, call):
    with pytest.raises((ValueError, TypeError), match=message):
        call(*operands(4))
