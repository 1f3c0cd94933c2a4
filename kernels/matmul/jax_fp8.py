"""Layers whose products are in FP8: what kbj.dense and kbj.mlp do with a recipe (jax_recipes.py and jax_block_scaling.py, which
say what each rounds by).

Of a product on Hopper both operands have the dim innermost over which is summed. So a matrix [M, N] is quantized both ways in one
pass, and each way is used once:

    y  = x   w        rows of x            columns of w
    dx = dy  w^T      rows of dy           rows of w
    dw = x^T dy       columns of x         columns of dy

What waits for the backward pass is FP8: columns of x, rows of w.
"""

import functools

import jax
import jax.numpy as jnp

from kbundle_kernels.matmul_activations import activated
from kbundle_kernels.matmul_recipes import Fp8Codes, Recipe, Want
from kbundle.jax import _arguments

__all__ = []

UNIT = 16  # FP8 products on a GPU: rows of 16 bytes


def check(where, recipe, w, state, codes, precision):
    """Refuses what no layer of this recipe takes."""
    if not isinstance(recipe, Recipe):
        raise _arguments.refuse(where, "recipe", recipe, "None, or a kbj.CurrentScaling, kbj.DelayedScaling or kbj.BlockScaling")
    if precision is not None:
        raise _arguments.refuse(where, "precision", precision, "None with a recipe, whose products are FP8")
    recipe.check_state(where, state)
    if any(size == 0 or size % UNIT for size in w.shape):
        raise ValueError("%s: w has shape %s; with a recipe both of its dims must be multiples of %d, for FP8 products take rows of %d "
                         "bytes: pad w, or leave out the recipe" % (where, w.shape, UNIT, UNIT))
    if codes is None:
        return
    of_data, of_transposed = recipe.scale_shapes(w.shape)
    wanted = [w.shape, of_data, w.shape[::-1], of_transposed]
    found = [jnp.shape(one) for one in codes[:4]] if isinstance(codes, Fp8Codes) else type(codes).__name__
    if found != wanted:
        raise ValueError("%s: codes are %s; for w of shape %s they must be Fp8Codes of codes, scales, and both of the transpose, of shapes "
                         "%s: recipe.weight_codes(w) of this layer's recipe makes them" % (where, found, w.shape, wanted))


def whole_rows(x):
    """x[M, K] with rows of zeros up to a multiple of 16, over which dw sums."""
    return jnp.pad(x, ((0, -x.shape[0] % UNIT if x.shape[0] else UNIT), (0, 0)))


def dense(x, w, bias, activation, recipe, state, codes):
    """x[M, K] in FP8 times w[K, N] in FP8, y in x's dtype."""
    return _dense(whole_rows(x), w, bias, state, codes, activation, recipe)[:x.shape[0]]


def mlp(x, w1, bias1, w2, bias2, activation, recipe, states, codes):
    """Two layers, of whose activation only FP8 codes are ever in memory."""
    return _mlp(whole_rows(x), w1, bias1, w2, bias2, states, codes, activation, recipe)[:x.shape[0]]


# ---- one product and what is around it ----

def _weight(recipe, w, state, codes, want):
    return recipe.weights(w, state, want) if codes is None else codes


def _forward(recipe, x, w, bias, dtype):
    return recipe.product(x.data, x.scale, w.transposed, w.transposed_scale, dtype, 0, bias=bias)


def _gradients(recipe, x, w, dy, x_like, w_like):
    """(dx, dw) of x w from codes."""
    dx = recipe.product(dy.data, dy.scale, w.data, w.scale, x_like.dtype, 1)
    return dx, recipe.weight_gradient(x, dy, w_like.dtype)


def _waiting(x, w):
    """Of a layer's operands, what its backward pass needs."""
    return x._replace(data=None), w._replace(transposed=None)


def _like(array):
    """An array's dtype as something that may wait for a backward pass."""
    return None if array is None else jnp.zeros((0,), array.dtype)


# ---- dense ----

@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _dense(x, w, bias, state, codes, activation, recipe):
    w = _weight(recipe, w, state, codes, Want(data=False))
    x_codes = recipe.x_codes(x, state, Want(transposed=False))
    return activated(_forward(recipe, x_codes, w, bias, x.dtype), activation)


def _dense_forward(x, w, bias, state, codes, activation, recipe):
    w_codes = _weight(recipe, w, state, codes, Want())
    x_codes = recipe.x_codes(x, state)
    z = _forward(recipe, x_codes, w_codes, bias, x.dtype)
    kept = *_waiting(x_codes, w_codes), None if activation is None else z, _like(x), _like(w), _like(bias)
    return activated(z, activation), (kept, state)


def _dense_backward(activation, recipe, saved, dy):
    (x, w, z, x_like, w_like, bias), state = saved
    dz = recipe.activation_gradient_codes(dy, z, activation, state, Want(dbias=bias is not None))
    return *_gradients(recipe, x, w, dz, x_like, w_like), dz.dbias, recipe.next_state(state, x.amax, w.amax, dz.amax), None


# ---- mlp ----

@functools.partial(jax.custom_vjp, nondiff_argnums=(7, 8))
def _mlp(x, w1, bias1, w2, bias2, states, codes, activation, recipe):
    one_way = Want(data=False), Want(transposed=False)
    return _layers(x, w1, bias1, w2, bias2, states, codes, activation, recipe, *one_way)[0]


def _layers(x, w1, bias1, w2, bias2, states, codes, activation, recipe, w_want, x_want):
    """(y, z of the first layer, (x, w1), (h, w2) as codes)."""
    w1, w2 = (_weight(recipe, w, state, given, w_want) for w, state, given in zip((w1, w2), states, codes))
    x_codes = recipe.x_codes(x, states[0], x_want)
    z = _forward(recipe, x_codes, w1, bias1, x.dtype)
    h = recipe.activation_codes(z, activation, states[1], x_want)
    return _forward(recipe, h, w2, bias2, x.dtype), z, (x_codes, w1), (h, w2)


def _mlp_forward(x, w1, bias1, w2, bias2, states, codes, activation, recipe):
    y, z, first, second = _layers(x, w1, bias1, w2, bias2, states, codes, activation, recipe, Want(), Want())
    likes = [_like(array) for array in (x, w1, bias1, w2, bias2)]
    return y, (_waiting(*first), _waiting(*second), z, likes, states)


def _mlp_backward(activation, recipe, saved, dy):
    (x, w1), (h, w2), z, (x_like, w1_like, bias1, w2_like, bias2), states = saved
    dy = recipe.gradient_codes(dy, states[1], Want(dbias=bias2 is not None))
    dz = recipe.hidden_codes(dy, w2, z, activation, states[0], Want(dbias=bias1 is not None))
    dx, dw1 = _gradients(recipe, x, w1, dz, x_like, w1_like)
    dw2 = recipe.weight_gradient(h, dy, w2_like.dtype)
    following = (recipe.next_state(states[0], x.amax, w1.amax, dz.amax), recipe.next_state(states[1], h.amax, w2.amax, dy.amax))
    return dx, dw1, dz.dbias, dw2, dy.dbias, following, (None, None)


_dense.defvjp(_dense_forward, _dense_backward)
_mlp.defvjp(_mlp_forward, _mlp_backward)
