"""Promise: kbj.dense and kbj.mlp with a recipe are the products of what the recipe's FP8 codes stand for, forward and backward; delayed scales
follow their rule from step to step; a network trains with each recipe as it does without."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import kbundle.jax as kbj

RECIPES = {"current": kbj.CurrentScaling(), "delayed": kbj.DelayedScaling(history=4),
           "e4m3": kbj.CurrentScaling(gradient_dtype=jnp.float8_e4m3fn, fast_accumulation=(False, False, False)),
           "block": kbj.BlockScaling(), "block_e5m2": kbj.BlockScaling(power_of_two=True, gradient_dtype=jnp.float8_e5m2)}
each_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
ACTIVATIONS = {None: lambda z: z, "relu": jax.nn.relu, "gelu": jax.nn.gelu}
WIDE = jnp.float32


@pytest.fixture(autouse=True)
def exact_products(platform, kernels):
    """Formulas in float32, also where the default is TF32."""
    with jax.default_matmul_precision("highest"):
        yield


def values(*shape, seed=0, dtype=np.float32, scale=1.0):
    rng = np.random.default_rng([seed, *shape])
    return jnp.asarray(scale * rng.normal(size=shape), dtype)


def state_of(recipe, *amaxes):
    """A state whose scales fit tensors of these magnitudes, in the middle of training; None of recipes without one."""
    if not isinstance(recipe, kbj.DelayedScaling):
        return None
    x, w, gradient = amaxes
    history = jnp.asarray([[0, x / 2, x, x / 4], [0, w / 2, w, w / 4]], jnp.float32)
    last = jnp.asarray([0, gradient / 2, gradient, gradient / 4], jnp.float32)
    return kbj.ScalingState(history, 448 / history.max(1), last, 57344 / last.max())


def rounded(x, scale=None, dtype=jnp.float8_e4m3fn):
    """What codes of x stand for, float64, from an op that has tests of its own."""
    made = kbj.quantize(jnp.asarray(x), dtype, scale)
    return np.asarray(made.data, np.float64) * float(made.scale_inv)


def rounded_blocks(x, block, recipe, dtype=jnp.float8_e4m3fn):
    """The same of blocks."""
    x = jnp.asarray(x)
    codes, scales = kbj.quantize_blocks(x, dtype, block, power_of_two=recipe.power_of_two)
    scales = np.asarray(scales, np.float64).repeat(block[0], 0)[:x.shape[0]].repeat(block[1], 1)[:, :x.shape[1]]
    return np.asarray(codes, np.float64) * scales


def scales_of(state):
    return (None, None, None) if state is None else (state.scale[0], state.scale[1], state.gradient_scale)


def wanted_dense(recipe, x, w, bias, dz, state):
    """(z, dx, dw, dbias) in float64 of rows x[M, K] and the gradient dz by z."""
    wide = np.asarray(dz.astype(WIDE), np.float64)
    if isinstance(recipe, kbj.BlockScaling):
        group, tile, gradient = (1, 128), (128, 128), recipe.gradient_dtype
        q_w = rounded_blocks(w, tile, recipe)
        y, dx = rounded_blocks(x, group, recipe) @ q_w, rounded_blocks(dz, group, recipe, gradient) @ q_w.T
        dw = rounded_blocks(x, tile, recipe).T @ rounded_blocks(dz.T, group, recipe, gradient).T
        return y + np.asarray(bias, np.float64), dx, dw, wide.sum(0)
    of_x, of_w, of_dz = scales_of(state)
    q_x, q_w, q_dz = rounded(x, of_x), rounded(w, of_w), rounded(dz, of_dz, recipe.gradient_dtype)
    return q_x @ q_w + np.asarray(bias, np.float64), q_dz @ q_w.T, q_x.T @ q_dz, wide.sum(0)


def near(found, wanted, tolerance):
    """By the largest magnitude."""
    found = np.asarray(found.astype(WIDE), np.float64)
    assert found.shape == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(np.abs(wanted).max(), 1e-30))


def alike(found, wanted, tolerance):
    """By the root of the mean square, where few codes may round the other way."""
    found, wanted = np.asarray(found.astype(WIDE), np.float64), np.asarray(wanted.astype(WIDE), np.float64)
    assert np.linalg.norm(found - wanted) <= tolerance * np.linalg.norm(wanted)


@each_recipe
@pytest.mark.parametrize("dtype, w_dtype", [(np.float32, np.float32), (jnp.bfloat16, np.float32), (jnp.bfloat16, jnp.bfloat16),
                                            (np.float16, np.float16)])
@pytest.mark.parametrize("rows, inner, outer", [((32,), 48, 64), ((2, 3, 7), 272, 144), ((), 16, 160)])
def test_dense_is_the_products_of_what_codes_stand_for(rows, inner, outer, dtype, w_dtype, recipe):
    x, w = values(*rows, inner, dtype=dtype), values(inner, outer, dtype=w_dtype, seed=1, scale=0.1)
    bias, dy = values(outer, dtype=dtype, seed=2), values(*rows, outer, dtype=dtype, seed=3, scale=0.01)
    state = state_of(recipe, 3.5, 0.4, 0.035)
    call = jax.jit(lambda x, w, b: kbj.dense(x, w, b, recipe=recipe, state=state))
    found, pull = jax.vjp(call, x, w, bias)
    flat = lambda array: array.reshape(-1, array.shape[-1])
    wanted = wanted_dense(recipe, flat(x), w, bias.astype(WIDE), flat(dy), state)
    tolerances = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}
    for one, gradient, like in zip((found, *pull(dy)), wanted, (x, x, w, bias)):
        assert one.dtype == like.dtype
        near(one.reshape(gradient.shape), gradient, tolerances[one.dtype.name])


@each_recipe
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_dense_with_an_activation(activation, recipe):
    x, w, bias = values(2, 17, 64), values(64, 96, seed=1, scale=0.1), values(96, seed=2)
    dy, state = values(2, 17, 96, seed=3), state_of(recipe, 4.0, 0.4, 4.0)
    layer = functools.partial(kbj.dense, recipe=recipe, state=state)
    z, dense_pull = jax.vjp(layer, x, w, bias)
    found, pull = jax.vjp(functools.partial(layer, activation=activation), x, w, bias)
    near(found, ACTIVATIONS[activation](z), 1e-6)
    dz = jax.vjp(ACTIVATIONS[activation], z)[1](dy)[0]
    for one, wanted in zip(pull(dy), dense_pull(dz)):
        alike(one, wanted, 3e-3)


@each_recipe
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("biases", [True, False])
def test_mlp_is_two_layers(biases, activation, recipe):
    x, dy = values(50, 64, dtype=jnp.bfloat16), values(50, 32, dtype=jnp.bfloat16, seed=9)
    w1, w2 = values(64, 160, seed=1, scale=0.1), values(160, 32, seed=3, scale=0.1)
    b1, b2 = (values(n, seed=4) if biases else None for n in (160, 32))
    states = state_of(recipe, 4.0, 0.4, 2.0), state_of(recipe, 4.0, 0.4, 4.0)
    call = lambda x, w1, b1, w2, b2: kbj.mlp(x, w1, b1, w2, b2, activation, recipe=recipe, state=states)

    def layers(x, w1, b1, w2, b2):
        hidden = kbj.dense(x, w1, b1, activation, recipe=recipe, state=states[0])
        return kbj.dense(hidden, w2, b2, recipe=recipe, state=states[1])

    (found, pull), (wanted, wanted_pull) = (jax.vjp(jax.jit(f), x, w1, b1, w2, b2) for f in (call, layers))
    alike(found, wanted, 2e-2)
    for one, other in zip(pull(dy), wanted_pull(dy)):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype
            alike(one, other, 2e-2)


def next_scale(history, amax, scale, largest, margin, algorithm):
    """TransformerEngine's rule: the largest of the ring, this step's amax in slot 0 of it, then the ring moves on."""
    used = np.concatenate([[amax], history[1:]])
    a = used.max() if algorithm == "max" else amax
    new = np.float32(np.float32(largest) / np.float32(a)) / np.float32(2.0 ** margin) if np.isfinite(a) and a > 0 else scale
    return np.concatenate([[0], used[1:][1:], [amax]])[:len(history)] if len(history) > 1 else np.zeros(1), np.float32(new)


@pytest.mark.parametrize("algorithm, margin", [("max", 0), ("most_recent", 0), ("max", 2)])
def test_the_derivative_by_a_state_is_the_state_of_the_next_step(algorithm, margin):
    recipe = kbj.DelayedScaling(history=3, algorithm=algorithm, margin=margin)
    state = recipe.init()
    w = values(32, 48, seed=1)
    scales = np.ones(3, np.float32)
    histories = np.zeros((3, 3), np.float32)
    step = jax.jit(jax.grad(lambda state, x, dy: (kbj.dense(x, w, recipe=recipe, state=state) * dy).sum()))
    for number, magnitude in enumerate([1.0, 30.0, 0.25, 0.0, 0.5, 0.5]):
        x, dy = magnitude * values(40, 32, seed=number), 1e-4 * magnitude * values(40, 48, seed=number + 10)
        state = step(state, x, dy)
        for tensor, (array, largest) in enumerate(((x, 448), (w, 448), (dy, 57344))):
            amax = np.abs(np.asarray(array)).max()
            histories[tensor], scales[tensor] = next_scale(histories[tensor], amax, scales[tensor], largest, margin, algorithm)
        np.testing.assert_array_equal(np.stack([*state.history, state.gradient_history]), histories)
        np.testing.assert_array_equal([*state.scale, state.gradient_scale], scales)


def test_a_number_that_is_none_leaves_scales_alone():
    recipe = kbj.DelayedScaling(history=3)
    state = state_of(kbj.DelayedScaling(history=4), 1.0, 1.0, 1.0)
    state = kbj.ScalingState(state.history[:, :3], state.scale, state.gradient_history[:3], state.gradient_scale)
    x = values(16, 32).at[3, 4].set(jnp.nan)
    loss = lambda state: kbj.dense(x, values(32, 16, seed=1), recipe=recipe, state=state).sum()
    after = jax.grad(loss)(state)
    assert float(after.scale[0]) == float(state.scale[0]) and float(after.scale[1]) != float(state.scale[1])
    y = kbj.dense(x, values(32, 16, seed=1), recipe=kbj.CurrentScaling())
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(np.asarray(y), 3, 0)).all()


def parameters(seed):
    return {"w1": values(32, 64, seed=seed, scale=32 ** -0.5), "b1": jnp.zeros(64), "w2": values(64, 64, seed=seed + 1, scale=64 ** -0.5),
            "b2": jnp.zeros(64), "w3": values(64, 16, seed=seed + 2, scale=64 ** -0.5)}


def test_a_large_number_costs_bits_in_its_blocks_alone():
    x, w, dy = values(256, 384), values(384, 256, seed=1), values(256, 256, seed=2)
    x, dy = x.at[3, 5].set(1e6), dy.at[200, 7].set(1e6)
    found, pull = jax.vjp(lambda x, w: kbj.dense(x, w, recipe=kbj.BlockScaling()), x, w)
    dx, dw = pull(dy)
    wide = lambda array: np.asarray(array, np.float64)
    exact = wide(x) @ wide(w), wide(dy) @ wide(w).T, wide(x).T @ wide(dy)
    off = [np.linalg.norm(wide(one) - right, axis=1) / np.linalg.norm(right, axis=1) for one, right in zip((found, dx, dw), exact)]
    assert np.delete(off[0], 3).max() < 0.06 and np.delete(off[1], 200).max() < 0.06
    assert off[2][128:].max() < 0.06, "of x the first tile alone holds the number"
    tensor = wide(kbj.dense(x, w, recipe=kbj.CurrentScaling()))
    assert np.linalg.norm(tensor[4:] - exact[0][4:]) > 0.5 * np.linalg.norm(exact[0][4:]), "one scale for all loses the rest"


def test_blocks_of_nan_and_of_zeros_harm_no_others():
    x, w = values(32, 256).at[3, 4].set(jnp.nan).at[5].set(0.0), values(256, 16, seed=1)
    y, pull = jax.vjp(lambda x, w: kbj.dense(x, w, recipe=kbj.BlockScaling()), x, w)
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(np.asarray(y), 3, 0)).all() and not np.asarray(y[5]).any()
    dx, dw = pull(jnp.ones_like(y))
    assert np.isfinite(dx).all() and np.isnan(dw[4]).all() and np.isfinite(np.delete(np.asarray(dw), 4, 0)).all()


@pytest.mark.parametrize("name", ["current", "delayed", "block"])
def test_a_network_trains_with_a_recipe_as_without(name):
    recipe = RECIPES[name] if name != "delayed" else kbj.DelayedScaling(history=16)
    fresh = recipe.init() if name == "delayed" else None
    teacher = parameters(100)

    def network(p, x, recipe, states):
        first, second, third = states
        hidden = kbj.mlp(x, p["w1"], p["b1"], p["w2"], p["b2"], recipe=recipe, state=None if first is None else (first, second))
        return kbj.dense(jax.nn.relu(hidden), p["w3"], recipe=recipe, state=third).astype(WIDE)

    def train(recipe, states):
        @jax.jit
        def step(p, states, x):
            wanted = network(teacher, x, None, (None,) * 3)
            loss = lambda p, states: jnp.mean((network(p, x, recipe, states) - wanted) ** 2)
            value, (gradients, states) = jax.value_and_grad(loss, (0, 1))(p, states)
            return jax.tree.map(lambda v, g: v - 0.3 * g, p, gradients), states, value

        p, losses = parameters(0), []
        for number in range(150):
            p, states, value = step(p, states, values(128, 32, seed=1000 + number, dtype=jnp.bfloat16))
            losses.append(float(value))
        return np.asarray(losses)

    plain, found = train(None, (None,) * 3), train(recipe, (fresh,) * 3)
    assert plain[-10:].mean() < 0.5 * plain[:3].mean(), "there is something to learn"
    assert found[-10:].mean() < 1.1 * plain[-10:].mean()


@each_recipe
def test_weights_are_quantized_once_for_many_microbatches(recipe):
    x, w, v = values(4, 24, 32), values(32, 64, seed=1), values(64, 16, seed=2)
    states = state_of(recipe, 4.0, 4.0, 1.0), state_of(recipe, 4.0, 4.0, 1.0)
    loss = lambda w, v, x, codes: kbj.mlp(x, w, None, v, None, recipe=recipe, state=states, codes=codes).sum()

    @jax.jit
    def step(w, v):
        codes = tuple(recipe.weight_codes(one, state) for one, state in zip((w, v), states))
        return jax.lax.map(lambda rows: jax.grad(loss, (0, 1))(w, v, rows, codes), x)

    for one, wanted in zip(step(w, v), jax.jit(lambda w, v: jax.lax.map(lambda rows: jax.grad(loss, (0, 1))(w, v, rows, None), x))(w, v)):
        np.testing.assert_array_equal(one, wanted)


@each_recipe
def test_transforms(recipe):
    x, w, state = values(3, 16, 32), values(3, 32, 32, seed=1), state_of(recipe, 4.0, 4.0, 1.0)
    states = jax.tree.map(lambda array: jnp.stack([array] * 3), state)
    layer = lambda x, w, state: kbj.dense(x, w, None, "gelu", recipe=recipe, state=state)
    one_by_one = jnp.stack([layer(x[i], w[i], state) for i in range(3)])
    np.testing.assert_allclose(jax.jit(jax.vmap(layer))(x, w, states), one_by_one, rtol=1e-5, atol=1e-5)

    def deep(w, states, x, body=layer):
        return jax.lax.scan(lambda h, one: (body(h, *one), None), x, (w, states))[0].sum()

    wanted = jax.grad(lambda w, states: layer(layer(layer(x[0], w[0], *_at(states, 0)), w[1], *_at(states, 1)), w[2],
                                              *_at(states, 2)).sum(), (0, 1))(w, states)
    for body in (layer, jax.checkpoint(layer)):
        found = jax.jit(jax.grad(functools.partial(deep, body=body), (0, 1)))(w, states, x[0])
        jax.tree.map(functools.partial(alike, tolerance=1e-3), found, wanted)


def _at(states, number):
    return (jax.tree.map(lambda array: array[number], states),)


def test_devices_of_a_shard_map_share_a_state():
    recipe, mesh = kbj.DelayedScaling(history=4), Mesh(np.array(jax.devices()[:4]), "d")
    if len(jax.devices()) < 4:
        pytest.skip("needs four devices")
    x, w, bias, state = values(64, 32), values(32, 48, seed=1), values(48, seed=2), state_of(recipe, 4.0, 4.0, 1.0)
    x = x.at[40].multiply(3.0)  # the largest is on one device
    gradient = jax.grad(lambda x, w, b, s: kbj.dense(x, w, b, "gelu", recipe=recipe, state=s).sum(), (0, 1, 2, 3))

    def part(x, w, b, state):
        return gradient(x, w, b, state)

    rows, whole = PartitionSpec("d"), PartitionSpec()
    found = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=(rows, whole, whole, whole), out_specs=(rows, whole, whole, whole)))(
        x, w, bias, state)
    wanted = jax.jit(gradient)(x, w, bias, state)
    for one, other in zip(found[:3], wanted[:3]):
        near(one, np.asarray(other, np.float64), 1e-5)
    jax.tree.map(np.testing.assert_array_equal, found[3], wanted[3])


@each_recipe
def test_what_explicit_axes_divide_is_brought_together(recipe):
    if len(jax.devices()) < 4:
        pytest.skip("needs four devices")
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    x, w, state = values(64, 32), values(32, 48, seed=1), state_of(recipe, 4.0, 4.0, 1.0)
    gradient = jax.grad(lambda x, w: kbj.dense(x, w, None, "relu", recipe=recipe, state=state).sum(), (0, 1))
    wanted = jax.jit(gradient)(x, w)
    with jax.set_mesh(mesh):
        there = jax.device_put(x, jax.NamedSharding(mesh, PartitionSpec("d", None))), jax.device_put(w, jax.NamedSharding(mesh, PartitionSpec()))
        found = jax.jit(gradient)(*there)
    assert found[0].sharding.spec == there[0].sharding.spec
    for one, other in zip(found, wanted):
        alike(one, other, 1e-4)


@pytest.mark.parametrize("message, call", [
    ("multiples of 16", lambda x, w: kbj.dense(x[:, :40], w[:40], recipe=kbj.CurrentScaling())),
    ("multiples of 16", lambda x, w: kbj.dense(x, w[:, :72], recipe=kbj.CurrentScaling())),
    ("multiples of 16", lambda x, w: kbj.mlp(x, w, None, values(96, 8), None, recipe=kbj.CurrentScaling())),
    ("state is NoneType; with this DelayedScaling it must be a ScalingState", lambda x, w: kbj.dense(x, w, recipe=kbj.DelayedScaling())),
    ("one of shapes", lambda x, w: kbj.dense(x, w, recipe=kbj.DelayedScaling(history=3), state=kbj.DelayedScaling().init())),
    ("state is 'ScalingState'; it must be None", lambda x, w: kbj.dense(x, w, recipe=kbj.CurrentScaling(), state=kbj.DelayedScaling().init())),
    ("None without a recipe", lambda x, w: kbj.dense(x, w, state=kbj.DelayedScaling().init())),
    ("a pair: of the first layer", lambda x, w: kbj.mlp(x, w, None, w.T, None, recipe=kbj.DelayedScaling(), state=kbj.DelayedScaling().init())),
    ("recipe is 'fp8'", lambda x, w: kbj.dense(x, w, recipe="fp8")),
    ("precision is 'ieee'", lambda x, w: kbj.dense(x, w, precision="ieee", recipe=kbj.CurrentScaling())),
    ("which the recipe rounds to FP8", lambda x, w: kbj.dense(x.astype(jnp.float8_e5m2), w, recipe=kbj.CurrentScaling())),
    ("recipe.weight_codes", lambda x, w: kbj.dense(x, w, recipe=kbj.CurrentScaling(), codes=kbj.CurrentScaling().weight_codes(w.T))),
    ("of this layer's recipe", lambda x, w: kbj.dense(x, w, recipe=kbj.BlockScaling(), codes=kbj.CurrentScaling().weight_codes(w))),
    ("multiples of 16", lambda x, w: kbj.dense(x, w[:, :72], recipe=kbj.BlockScaling())),
    ("state is 'ScalingState'; it must be None", lambda x, w: kbj.dense(x, w, recipe=kbj.BlockScaling(), state=kbj.DelayedScaling().init())),
    ("power_of_two is 2", lambda x, w: kbj.BlockScaling(power_of_two=2)),
    ("it must be float8_e4m3fn or", lambda x, w: kbj.BlockScaling(gradient_dtype=jnp.bfloat16)),
    ("it must be float8_e4m3fn or", lambda x, w: kbj.CurrentScaling(gradient_dtype=jnp.bfloat16)),
    ("fast_accumulation", lambda x, w: kbj.DelayedScaling(fast_accumulation=True)),
    ("history is 0", lambda x, w: kbj.DelayedScaling(history=0)), ("algorithm", lambda x, w: kbj.DelayedScaling(algorithm="mean"))])
def test_what_no_recipe_takes_is_refused(message, call):
    with pytest.raises((ValueError, TypeError), match=message):
        call(values(4, 64), values(64, 96))


@each_recipe
def test_no_rows_are_no_trouble(recipe):
    state = state_of(recipe, 1.0, 1.0, 1.0)
    x, w = values(0, 32), values(32, 16)
    y, pull = jax.vjp(lambda x, w: kbj.dense(x, w, recipe=recipe, state=state), x, w)
    dx, dw = pull(y)
    assert y.shape == (0, 16) and dx.shape == x.shape
    np.testing.assert_array_equal(dw, np.zeros((32, 16)))
