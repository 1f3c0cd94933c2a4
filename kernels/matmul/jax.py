"""Matrix products as differentiable JAX functions: kbj.matmul, kbj.dense, kbj.mlp, where kbj is kbundle.jax.

They run the op matmul.matmul of the default bundle (kbundle.use). What it means is in README.md beside this file. Flags,
dtypes and alpha are part of the compiled program: Python values, never traced ones.

Gradients are products as well. One that arrives in a wider dtype than the operands have is rounded to theirs first.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kbundle._modes import BITS
from kbundle.jax import _arguments, call
from kbundle.jax._modes import asked
from kbundle.jax._primitive import explicit, placed, same_axes, whole
from kbundle_kernels import matmul_formulas, matmul_fp8
from kbundle_kernels.matmul_activations import GATED, gate, positive, through_activation, width

__all__ = ["dense", "matmul", "mlp"]

_ACTIVATIONS = (None, "relu", "gelu")
_FP8 = (jnp.float8_e4m3fn, jnp.float8_e5m2)
_DTYPES = (jnp.bfloat16, jnp.float16, jnp.float32)


def matmul(a, b, *, trans_a=False, trans_b=False, out_dtype=None, alpha=1.0, precision=None, a_scale=None, b_scale=None,
           fast_accumulation=False):
    """alpha * op(a) @ op(b), where op swaps the last two axes if trans_a or trans_b says so. Shapes are those of
    jnp.matmul: vectors, matrices, and leading dims that broadcast.

    Operands are bfloat16, float16 or float32, of one dtype after JAX's promotion, or both FP8 (e4m3fn, e5m2, also
    mixed). Sums are float32. out_dtype is by default that of the operands, bfloat16 for FP8. precision matters for
    float32 on a GPU: "ieee" (or jax.lax.Precision.HIGHEST) against "tf32" (every other); by default what
    jax_default_matmul_precision says. FP8 operands are multiplied by the scalars a_scale and b_scale, arrays on the
    device; fast_accumulation lets sums of FP8 products be less exact. FP8 has no gradient.
    """
    a, b = _same_dtype("matmul", a, b)
    trans_a, trans_b = _arguments.flag("matmul", "trans_a", trans_a), _arguments.flag("matmul", "trans_b", trans_b)
    alpha, fast = _arguments.number("matmul", "alpha", alpha), _arguments.flag("matmul", "fast_accumulation", fast_accumulation)
    if (trans_a and a.ndim < 2) or (trans_b and b.ndim < 2) or not a.ndim or not b.ndim:
        raise ValueError("matmul: the operands have shapes %s and %s; a scalar is no matrix, and a vector has no axes to "
                         "swap" % (a.shape, b.shape))
    vectors = a.ndim == 1, b.ndim == 1
    a, b = a[None] if vectors[0] else a, b[:, None] if vectors[1] else b
    depth = a.shape[-2 if trans_a else -1], b.shape[-1 if trans_b else -2]
    if depth[0] != depth[1]:
        raise ValueError("matmul: op(a) has %d columns and op(b) %d rows, of shapes %s and %s; they must be equally many"
                         % (*depth, a.shape, b.shape))
    out_dtype = _out_dtype(out_dtype, a.dtype)
    # cuBLASLt rounds its sums to the operands' dtype or not at all.
    rounded = out_dtype in _DTYPES and a.dtype not in _FP8 and out_dtype != a.dtype
    how = _How(trans_a, trans_b, jnp.dtype(jnp.float32) if rounded else out_dtype, alpha, _precision("matmul", a, precision), fast)
    d = _batched(a, b, _scale(a, a_scale), _scale(b, b_scale), how)
    dims = d.shape[:-2] + (() if vectors[0] else d.shape[-2:-1]) + (() if vectors[1] else d.shape[-1:])
    return d.reshape(dims).astype(out_dtype)


def dense(x, w, bias=None, activation=None, *, precision=None, recipe=None, state=None, codes=None):
    """activation(x[.., K] @ w[K, N] + bias[N]) with activation None, "relu" or "gelu" (the approximation with tanh), in
    one call. Leading dims of x are rows of one product: cheaper than vmap, which repeats w.

    recipe: None, or how x, w and gradients are rounded to FP8 in front of the products, forward and backward: kbj.CurrentScaling(),
    kbj.DelayedScaling() or kbj.BlockScaling(). The result has then x's dtype, gradients those of x, w and bias; w may have another
    dtype than x, such as the float32 of master weights. K and N are multiples of 16. state: with DelayedScaling the layer's
    kbj.ScalingState, whose derivative is that of the next step. codes: recipe.weight_codes(w, state), where w is quantized once for
    several calls; None: here.
    """
    if recipe is not None:
        x, w, bias = _recipe_layer("dense", x, w, bias, activation)
        matmul_fp8.check("dense", recipe, w, state, codes, precision)
        rows, w, bias = _over_same_axes(x.reshape(-1, x.shape[-1]), w, bias)
        y = matmul_fp8.dense(rows, w, bias, activation, recipe, state, codes)
        return y.reshape(x.shape[:-1] + y.shape[-1:])
    _no_recipe("dense", state, codes)
    x, w = _same_dtype("dense", x, w)
    bias = _bias("dense", bias, w)
    _check_layer("dense", x.shape, w, bias, activation)
    if x.size == 0 or w.size == 0:
        return _formula(x, w, bias, activation)
    precision = _precision("dense", x, precision)
    how = _How(False, False, x.dtype, precision=precision)
    arrays = _placed(x.reshape(-1, x.shape[-1]), w, how, bias=bias, epilogue=activation or "none")
    y = _dense(arrays[0], arrays[1], arrays[3], activation, precision)
    return y.reshape(x.shape[:-1] + y.shape[-1:])


def mlp(x, w1, bias1, w2, bias2, activation="gelu", *, precision=None, recipe=None, state=None, codes=None):
    """dense(dense(x, w1, bias1, activation), w2, bias2), where a bias may be None, and activation is "relu", "gelu", or gated: "swiglu",
    "geglu", "reglu". Then w1 is [K, 2 * F], bias1 [2 * F], w2 [F, N], and between them is f(the first F columns) * the others, in
    float32, f being silu, gelu (by tanh) or relu; in a shard_map that divides F each device has its part of both halves.

    With a recipe state and codes, where they are not None, are pairs: of the first layer and of the second; what the activation makes
    is then in memory in FP8 alone (with BlockScaling also before it is quantized)."""
    if activation is None:
        raise ValueError('mlp: activation is None; "relu", "gelu", "swiglu", "geglu" or "reglu" is needed')
    if recipe is not None:
        return _recipe_mlp(x, w1, bias1, w2, bias2, activation, recipe, state, codes, precision)
    _no_recipe("mlp", state, codes)
    x, w1 = _same_dtype("mlp", x, w1)
    _, w2 = _same_dtype("mlp", x, w2)
    bias1, bias2 = _bias("mlp", bias1, w1), _bias("mlp", bias2, w2)
    _check_layer("mlp", x.shape, w1, bias1, activation)
    _check_layer("mlp", _hidden(w1, activation), w2, bias2, None)
    if activation in GATED:
        return dense(gate(dense(x, w1, bias1, precision=precision), activation), w2, bias2, precision=precision)
    # What lies where between the layers, and what is widened there, is dense's to say.
    if x.dtype != w2.dtype or explicit(x, w1, bias1, w2, bias2):
        return dense(dense(x, w1, bias1, activation, precision=precision), w2, bias2, precision=precision)
    if x.size == 0 or w1.size == 0 or w2.size == 0:
        return _formula(_formula(x, w1, bias1, activation), w2, bias2, None)
    arrays = _over_same_axes(x.reshape(-1, x.shape[-1]), w1, bias1, w2, bias2)
    y = _mlp(*arrays, activation, _precision("mlp", x, precision))
    return y.reshape(x.shape[:-1] + y.shape[-1:])


def _recipe_mlp(x, w1, bias1, w2, bias2, activation, recipe, state, codes, precision):
    states, codes = _pair("state", state), _pair("codes", codes)
    x, w1, bias1 = _recipe_layer("mlp", x, w1, bias1, activation)
    hidden, w2, bias2 = _recipe_layer("mlp", jax.ShapeDtypeStruct(_hidden(w1, activation), x.dtype), w2, bias2, None)
    for w, one, given in zip((w1, w2), states, codes):
        matmul_fp8.check("mlp", recipe, w, one, given, precision)
    arrays = _over_same_axes(x.reshape(-1, x.shape[-1]), w1, bias1, w2, bias2)
    y = matmul_fp8.mlp(*arrays, activation, recipe, states, codes)
    return y.reshape(x.shape[:-1] + y.shape[-1:])


def _hidden(w1, activation):
    """The shape of what goes into the second layer, K for its rows."""
    if activation in GATED and w1.shape[1] % 2:
        raise ValueError("mlp: w1 has shape %s; with activation %r it must have two halves, [K, 2 * F]" % (w1.shape, activation))
    return w1.shape[0], width(activation, w1.shape[1])


def _recipe_layer(function, x, w, bias, activation):
    """Of a layer with a recipe: the result has x's dtype, w keeps its own."""
    x, w = (array if isinstance(array, jax.ShapeDtypeStruct) else jnp.asarray(array) for array in (x, w))
    for array in (x, w):
        if array.dtype not in _DTYPES:
            raise TypeError("%s: an operand is %s; with a recipe it must be bfloat16, float16 or float32, which the recipe rounds to FP8: "
                            "convert it with astype" % (function, array.dtype))
    bias = _bias(function, bias, w)
    _check_layer(function, x.shape, w, bias, activation)
    here = lambda array: array if isinstance(array, jax.ShapeDtypeStruct) else whole(array)  # one scale is of all of it
    return here(x), here(w), None if bias is None else here(bias.astype(x.dtype))


def _no_recipe(function, state, codes):
    for name, value in (("state", state), ("codes", codes)):
        if value is not None:
            raise _arguments.refuse(function, name, type(value).__name__, "None without a recipe")


def _pair(name, given):
    if given is None:
        return None, None
    if isinstance(given, (tuple, list)) and len(given) == 2 and not hasattr(given, "_fields"):
        return tuple(given)
    raise _arguments.refuse("mlp", name, type(given).__name__, "None, or a pair: of the first layer and of the second")


def _over_same_axes(*arrays):
    """Arrays, of which some may be None, over the same axes inside shard_map."""
    moved = iter(same_axes([array for array in arrays if array is not None]))
    return [None if array is None else next(moved) for array in arrays]


class _How(NamedTuple):
    """What of a product is part of the program."""
    trans_a: bool
    trans_b: bool
    out_dtype: jnp.dtype
    alpha: float = 1.0
    precision: str = "tf32"
    fast_accumulation: bool = False


# ---- arguments ----

def _same_dtype(function, a, b):
    a, b = jnp.asarray(a), jnp.asarray(b)
    if a.dtype in _FP8 and b.dtype in _FP8:
        return a, b
    dtype = None if a.dtype in _FP8 or b.dtype in _FP8 else jnp.promote_types(a.dtype, b.dtype)
    if dtype not in _DTYPES:
        raise TypeError("%s: the operands are %s and %s; both must be bfloat16, float16 or float32, or both FP8 (e4m3fn, "
                        "e5m2); convert them with astype" % (function, a.dtype, b.dtype))
    return a.astype(dtype), b.astype(dtype)


def _out_dtype(given, dtype):
    if given is None:
        return jnp.dtype(jnp.bfloat16 if dtype in _FP8 else dtype)
    try:
        return jnp.dtype(given)
    except TypeError:
        raise _arguments.refuse("matmul", "out_dtype", given, "a dtype or its name, such as jnp.float32") from None


def _bias(function, bias, w):
    if bias is None:
        return None
    bias = _arguments.real(function, "the bias", bias)
    if bias.shape != w.shape[-1:]:
        raise ValueError("%s: the bias has shape %s; for w of shape %s it must be %s" % (function, bias.shape, w.shape, w.shape[-1:]))
    return bias.astype(w.dtype)


def _check_layer(function, x_shape, w, bias, activation):
    allowed = _ACTIVATIONS + (tuple(GATED) if function == "mlp" else ())
    if activation not in allowed:
        raise ValueError("%s: activation is %r; it must be one of %s" % (function, activation, allowed))
    if w.dtype in _FP8:
        raise TypeError("%s: FP8 has no gradient; use kbj.matmul with a_scale and b_scale" % function)
    if w.ndim != 2 or not x_shape or x_shape[-1] != w.shape[0]:
        raise ValueError("%s: x of shape %s and w of shape %s do not fit; they must be [.., K] and [K, N]"
                         % (function, tuple(x_shape), w.shape))


def _precision(function, a, given):
    """The op's choice; where it makes no difference always the same one, so that equal products share a plan."""
    names = [_precision_name(function, one) for one in (given if isinstance(given, tuple) else (given,))]
    exact = any(name in ("ieee", "highest", "float32", "f32_f32_f32") for name in names)
    return "ieee" if exact and a.dtype == jnp.float32 else "tf32"


def _precision_name(function, given):
    """Small letters of: "ieee", "tf32", or what jax.lax.dot takes. None: jax_default_matmul_precision's."""
    if given is None:
        return str(jax.config.jax_default_matmul_precision).lower()
    name = str(getattr(given, "name", given)).lower()
    if name not in ("ieee", "tf32") and not isinstance(given, (jax.lax.Precision, jax.lax.DotAlgorithmPreset)):
        try:
            jax.lax.Precision(given)
        except ValueError:
            if given not in {preset.name for preset in jax.lax.DotAlgorithmPreset}:
                raise _arguments.refuse(function, "precision", given, '"ieee", "tf32", None, a jax.lax.Precision or the name '
                                        "of one, or a name of jax.lax.DotAlgorithmPreset") from None
    return name


def _scale(array, scale):
    if scale is None:
        return None
    if array.dtype not in _FP8:
        raise TypeError("matmul: a scale is given for an operand of dtype %s; scales are for FP8, use alpha" % array.dtype)
    scale = jnp.asarray(scale, jnp.float32)
    if scale.size != 1:
        raise ValueError("matmul: a scale has shape %s; it must be one number for all of the operand" % (scale.shape,))
    return scale.reshape(())


# ---- products ----

def _call(a, b, how, c=None, bias=None, aux=None, mask=None, a_scale=None, b_scale=None, formula=matmul_formulas.product, **attributes):
    """(d, aux_out, mask_out, dbias) of the op."""
    return call(None, "matmul.matmul", a, b, c, bias, aux, mask, a_scale, b_scale, formula=formula, **_given(a, how), **attributes)


_gradient = functools.partial(_call, formula=matmul_formulas.gradient)  # of a product or a layer


def _placed(a, b, how, bias=None, a_scale=None, b_scale=None, **attributes):
    """The op's operands, where that call would bring them."""
    return placed(None, "matmul.matmul", a, b, None, bias, None, None, a_scale, b_scale, **_given(a, how), **attributes)


def _given(a, how):
    return {name: value for name, value in how._asdict().items() if name != "fast_accumulation" or a.dtype in _FP8}


def _batched(a, b, a_scale, b_scale, how):
    """The product of operands with leading dims that broadcast. Where only a has some, they are rows."""
    rows, columns = a.shape[-1 if how.trans_a else -2], b.shape[-2 if how.trans_b else -1]
    lead = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if 0 in (a.size, b.size):
        return jnp.zeros((*lead, rows, columns), how.out_dtype)
    if b.ndim == 2 and not how.trans_a:
        a = a.reshape(-1, a.shape[-1])
    else:
        a, b = jnp.broadcast_to(a, lead + a.shape[-2:]), jnp.broadcast_to(b, lead + b.shape[-2:])
    a, b, *_, a_scale, b_scale = _placed(a, b, how, a_scale=a_scale, b_scale=b_scale)
    product = _fp8 if a.dtype in _FP8 else _product
    return product(a, b, a_scale, b_scale, how).reshape(*lead, rows, columns)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _fp8(a, b, a_scale, b_scale, how):
    return _call(a, b, how, a_scale=a_scale, b_scale=b_scale)[0]


def _fp8_backward(how, saved, dd):
    raise NotImplementedError("[kbundle:UNIMPLEMENTED] differentiating kbj.matmul of FP8 operands: a gradient in FP8 would "
                              "mean little; put the quantization and the product into one jax.custom_vjp of your own")


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _product(a, b, a_scale, b_scale, how):
    return _call(a, b, how)[0]


def _product_backward(how, saved, dd):
    a, b = saved
    dd = dd.astype(a.dtype)
    like = how._replace(out_dtype=a.dtype)
    if how.trans_b:  # b's first, as JAX has them
        db = _gradient(dd, a, like._replace(trans_a=True, trans_b=how.trans_a))[0]
    else:
        db = _gradient(a, dd, like._replace(trans_a=not how.trans_a, trans_b=False), formula=matmul_formulas.gradient_of_b)[0]
    of_a = (b, dd, how.trans_b, True) if how.trans_a else (dd, b, False, not how.trans_b)
    return _gradient(*of_a[:2], like._replace(trans_a=of_a[2], trans_b=of_a[3]))[0], db, None, None


# ---- layers ----

def _formula(x, w, bias, activation):
    y = jnp.matmul(x, w) if bias is None else jnp.matmul(x, w) + bias
    return {None: lambda v: v, "relu": jax.nn.relu, "gelu": jax.nn.gelu}[activation](y)


def _layer(x, w, bias, activation, precision, trans_w=False, **attributes):
    how = _How(False, trans_w, x.dtype, precision=precision)
    return _call(x, w, how, bias=bias, epilogue=activation or "none", **attributes)


def layer(x, w, bias=None, *, trans_w=False):
    """x[M, K] @ op(w) + bias[N], which has no derivative: for who makes one himself."""
    return _layer(x, w, bias, None, _precision("dense", x, None), trans_w)[0]


def _saved_layer(x, w, bias, activation, precision):
    """The layer's result, and what the gradient of its activation needs."""
    y, aux, mask, _ = _layer(x, w, bias, activation, precision, with_aux=activation is not None)
    return y, (aux if activation == "gelu" else mask)


def _weight_gradients(x, dz, bias, precision):
    """dw = x^T dz, and dbias with it where rows are aligned, as cuBLASLt wants it."""
    how = _How(True, False, x.dtype, precision=precision)
    aligned = all(array.shape[-1] * array.dtype.itemsize % 16 == 0 for array in (x, dz))
    dw, _, _, dbias = _gradient(x, dz, how, formula=matmul_formulas.gradient_of_b, bias_gradient="b" if bias is not None and aligned else "none")
    if bias is not None and not aligned:
        dbias = dz.reshape(-1, dz.shape[-1]).sum(0, dtype=jnp.float32).astype(dz.dtype)
    return dw, dbias


def _activation_gradient(dy, kept, activation):
    """dy through the activation of a layer, as a formula that XLA joins with what made dy."""
    if activation == "relu":
        return jnp.where(positive(kept, dy.shape[-1]), dy, 0)
    return through_activation(dy, kept, activation)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _dense(x, w, bias, activation, precision):
    return _layer(x, w, bias, activation, precision)[0]


def _dense_forward(x, w, bias, activation, precision):
    y, kept = _saved_layer(x, w, bias, activation, precision)
    return y, (x, w, bias, kept)


def _dense_backward(activation, precision, saved, dy):
    x, w, bias, kept = saved
    dz = _activation_gradient(dy, kept, activation)
    dw, dbias = _weight_gradients(x, dz, bias, precision)
    return _gradient(dz, w, _How(False, True, x.dtype, precision=precision))[0], dw, dbias


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _mlp(x, w1, bias1, w2, bias2, activation, precision):
    return _layer(_layer(x, w1, bias1, activation, precision)[0], w2, bias2, None, precision)[0]


def _mlp_forward(x, w1, bias1, w2, bias2, activation, precision):
    h, kept = _saved_layer(x, w1, bias1, activation, precision)
    return _layer(h, w2, bias2, None, precision)[0], (x, w1, bias1, h, w2, bias2, kept)


def _mlp_backward(activation, precision, saved, dy):
    x, w1, bias1, h, w2, bias2, kept = saved
    transposed = _How(False, True, x.dtype, precision=precision)
    dw2, dbias2 = _weight_gradients(h, dy, bias2, precision)
    if h.shape[-1] % 8 == 0:
        together = bias1 is not None and not asked() & BITS["batch_invariant"]  # sums with dz are shared out by the number of rows
        given = {"aux" if activation == "gelu" else "mask": kept, "bias_gradient": "d" if together else "none"}
        dz, _, _, dbias1 = _gradient(dy, w2, transposed, epilogue="d" + activation, **given)
        dw1, apart = _weight_gradients(x, dz, None if together else bias1, precision)
        dbias1 = dbias1 if together else apart
    else:  # cuBLASLt wants whole rows of 16 bytes
        dz = _activation_gradient(_gradient(dy, w2, transposed)[0], kept, activation)
        dw1, dbias1 = _weight_gradients(x, dz, bias1, precision)
    return _gradient(dz, w1, transposed)[0], dw1, dbias1, dw2, dbias2


_fp8.defvjp(lambda a, b, a_scale, b_scale, how: (_fp8(a, b, a_scale, b_scale, how), None), _fp8_backward)
_product.defvjp(lambda a, b, a_scale, b_scale, how: (_product(a, b, a_scale, b_scale, how), (a, b)), _product_backward)
_dense.defvjp(_dense_forward, _dense_backward)
_mlp.defvjp(_mlp_forward, _mlp_backward)
