"""Promise: operands of several dtypes mean what jax.numpy's promotion of them says, and what is empty is told so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform", "kernels")
GATES = {"swiglu": jax.nn.silu, "geglu": jax.nn.gelu, "reglu": jax.nn.relu}
ALONE = {"relu": jax.nn.relu, "gelu": jax.nn.gelu}
DTYPES = [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32]


def values(seed, *dims):
    return np.random.default_rng(seed).integers(-4, 5, dims) / 4


def layer(x, w, bias, activation=None):
    y = jnp.asarray(x) @ jnp.asarray(w)
    y = y if bias is None else y + bias.astype(y.dtype)
    if activation in GATES:
        gate, up = jnp.split(y, 2, axis=-1)
        return (GATES[activation](gate.astype(jnp.float32)) * up).astype(y.dtype)
    return ALONE[activation](y) if activation else y


def near(found, wanted):
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(np.asarray(found, np.float32), np.asarray(wanted, np.float32), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("w_dtype", DTYPES)
@pytest.mark.parametrize("x_dtype", DTYPES[:3])
def test_a_layer_and_its_bias(x_dtype, w_dtype):
    x, w, bias = jnp.asarray(values(0, 3, 8), x_dtype), jnp.asarray(values(1, 8, 16), w_dtype), jnp.full(16, 0.5)
    near(kbj.dense(x, w, bias), layer(x, w, bias))
    near(jax.grad(lambda bias: kbj.dense(x, w, bias).astype(jnp.float32).sum())(bias), jnp.full(16, 3.0))


@pytest.mark.parametrize("activation", [*GATES, *ALONE])
@pytest.mark.parametrize("dtypes", [(0, 3, 0), (0, 0, 3), (0, 1, 0), (1, 1, 0), (1, 0, 1), (2, 0, 0)])
def test_two_layers_and_their_biases(dtypes, activation):
    """x, w1 and w2: each promoted with what is in front of it, biases with their layers."""
    x, w1, w2 = (jnp.asarray(values(*given), DTYPES[dtype]) for given, dtype in zip([(0, 3, 8), (1, 8, 16), (2, 8 if activation in GATES else 16, 8)],
                                                                                    dtypes))
    biases = jnp.full(16, 0.5), jnp.full(8, 0.25)
    ours = lambda *biases: kbj.mlp(x, w1, biases[0], w2, biases[1], activation)
    formula = lambda *biases: layer(layer(x, w1, biases[0], activation), w2, biases[1])
    near(ours(*biases), formula(*biases))
    sums = lambda function: jax.grad(lambda *biases: function(*biases).astype(jnp.float32).sum(), (0, 1))(*biases)
    for found, wanted in zip(sums(ours), sums(formula)):
        near(found, wanted)


def test_what_numpy_and_lists_hold():
    x, w, bias = values(0, 2, 3).astype(np.float32), values(1, 3, 2), jnp.ones(2)
    near(kbj.dense(x, w.tolist(), bias), layer(x, w.astype(np.float32), bias))


def test_integers_and_their_residual_are_norms_of_floats():
    x, gamma = jnp.arange(8).reshape(2, 4), jnp.ones(4)
    near(kbj.rms_norm(x, gamma, residual=x)[0], kbj.rms_norm(2.0 * x, gamma))


@pytest.mark.parametrize("call", [lambda: kbj.permute(jnp.ones((3, 0)), jnp.ones((3, 2), bool), 6),
                                  lambda: kbj.permute(jnp.ones((3, 8)), jnp.ones((3, 0), bool), 6),
                                  lambda: kbj.sort_chunks(jnp.ones((3, 0)), jnp.array([3]), jnp.array([0])),
                                  lambda: kbj.unpermute(jnp.ones((6, 8)), jnp.zeros((3, 5), jnp.int32), jnp.ones((3, 0)))],
                         ids=["no columns", "no experts", "no columns of chunks", "no probabilities"])
def test_what_is_not_defined_without_columns_says_so(call):
    with pytest.raises(ValueError, match="is false with|must be|has shape|asks for"):
        call()


def test_probabilities_of_fp8_rows_have_gradients():
    x, routed, weights = jnp.ones((4, 8), jnp.float8_e4m3fn), jnp.ones((4, 2), bool), jnp.arange(8.0)
    found = jax.grad(lambda probs: (kbj.permute(x, routed, 8, probs)[1] * weights).sum())(jnp.ones((4, 2)))
    np.testing.assert_array_equal(found, weights.reshape(2, 4).T)
