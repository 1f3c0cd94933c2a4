"""Attention as a differentiable JAX function: kbj.dot_product_attention, where kbj is kbundle.jax.

It runs the ops of the default bundle (kbundle.use). What they mean, corner cases included, is in README.md beside this
file. Everything but arrays is part of the compiled program.
"""

import collections
import functools
import math

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from kbundle import Error, _spec, default_bundle
from kbundle._bundle import CUDA, HOST
from kbundle.jax import call
from kbundle.jax._primitive import same_axes

__all__ = ["dot_product_attention", "packed_dot_product_attention"]

_FORWARD, _BACKWARD = "attention.sdpa_forward", "attention.sdpa_backward"
_PACKED = "attention.sdpa_packed_forward", "attention.sdpa_packed_backward"
_LAYOUTS = {"BTNH": "bshd", "BNTH": "bhsd"}
_HIDDEN = {"float16": -3e4}  # what a mask adds to a score; of other dtypes -1e30

# Operands after query, key and value, by their names in the op; None where absent.
_Extra = collections.namedtuple("_Extra", "bias q_lengths kv_lengths dropout_state score_tensor0 score_tensor1")

# ops: forward and backward; arrays: query, key and value, or what holds them; attributes of the forward op as a sorted tuple.
_Problem = collections.namedtuple("_Problem", "ops arrays extra attributes deterministic")
_DTYPES = jnp.float32, jnp.float16, jnp.bfloat16


def dot_product_attention(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, query_seq_lengths=None,
                          key_value_seq_lengths=None, local_window_size=None, implementation=None, return_residual=False,
                          layout="BTNH", dropout_rate=0.0, dropout_seed=None, dropout_generator=None, score_mod=None,
                          deterministic=False, fallback=None, **score_values):
    """softmax(scale * query key^T + bias) value: jax.nn.dot_product_attention, with its names, layout and meaning.

    query[B, T, N, H], key[B, S, K, H], value[B, S, K, V] or the same without B; K divides N. bias broadcasts to
    [B, N, T, S] and is rounded to query's dtype. Gradients flow to query, key, value and bias.

    is_causal           also "bottom_right": the last query sees the last key (of the sequence lengths, where given)
    mask                boolean, broadcasts to [B, N, T, S]; it is added to the scores, as a bias is, and as large
    local_window_size   left, or (left, right); without is_causal right must be 0, which makes it causal
    return_residual     also the log-sum-exp of the scores, [B, T, N], in query's dtype; no gradient flows through it
    layout              "BNTH": sequences after heads, in all three and in the result
    dropout_rate, dropout_seed   probability, and uint32[2] (a seed) or uint32[4] (a seed and an offset) on the device,
                        or a key of jax.random. Inside shard_map each device counts its own batches and heads: give
                        each its own seed
    dropout_generator   "own": the elements that README.md beside this file defines, on every platform. "cudnn": others, by
                        the plans of cuDNN, an error where there is none for a shape. None: on GPUs cuDNN's where the
                        bundle has plans of both directions for the shape, else our own
    score_mod           the name of a score modifier of the family's manifest, such as "softcap" or "alibi"; its scalars
                        (Python numbers) and tensors (f32 arrays) follow by name: score_mod="softcap", cap=30.0. They
                        are no matter of gradients: asking for one is an error
    deterministic       gradients of the same inputs are the same bits
    implementation      "xla", "cudnn": jax.nn's own
    fallback            "jax": what no kernel takes is computed by jax.nn, instead of an error

    A query that sees no key gives 0 here and the mean of all values in jax.nn.
    """
    given = dict(scale=scale, is_causal=is_causal, query_seq_lengths=query_seq_lengths, key_value_seq_lengths=key_value_seq_lengths,
                 local_window_size=local_window_size, return_residual=return_residual)
    own = dict(layout=layout != "BTNH", dropout_rate=bool(dropout_rate), score_mod=score_mod is not None,
               is_causal=is_causal not in (True, False))
    plain = functools.partial(_by_jax, query, key, value, bias, mask, implementation, own, given)
    if implementation not in (None, "kbundle"):
        return plain()
    if fallback not in (None, "jax"):
        raise ValueError("dot_product_attention: fallback=%r; it is None or \"jax\"" % (fallback,))
    try:
        problem = _problem(query, key, value, bias, mask, layout=layout, dropout_rate=dropout_rate, dropout_seed=dropout_seed,
                           score_mod=score_mod, score_values=score_values, deterministic=deterministic, **given)
    except NotImplementedError as error:
        if fallback == "jax":
            return plain()
        raise Error("UNIMPLEMENTED", "dot_product_attention: %s; fallback=\"jax\" computes it by jax.nn" % error) from None
    own_kernels = functools.partial(_by_kernels, problem, dropout_generator, return_residual, jnp.ndim(query) == 3)
    return own_kernels() if fallback is None else _where_legal(problem, own_kernels, plain)


def packed_dot_product_attention(qkv, bias=None, mask=None, *, kv_heads=None, scale=None, is_causal=False, seq_lengths=None,
                                 local_window_size=None, return_residual=False, dropout_rate=0.0, dropout_seed=None,
                                 dropout_generator=None, score_mod=None, deterministic=False, **score_values):
    """dot_product_attention of queries, keys and values that lie in one array, which no kernel copies, nor its gradient.

    qkv[B, T, 3, N, H]; or with kv_heads=K qkv[B, T, N + 2 * K, H]: of a token first N heads of queries, then K of keys,
    then K of values. The rest means what it means there; is_causal is True or False.
    """
    qkv = jnp.asarray(qkv)
    if qkv.ndim == 5 and kv_heads is None and qkv.shape[2] == 3:
        kv_heads = qkv.shape[3]
        qkv = qkv.reshape(*qkv.shape[:2], 3 * kv_heads, qkv.shape[4])
    if qkv.ndim != 4 or not kv_heads or qkv.shape[2] <= 2 * kv_heads or qkv.shape[2] % kv_heads:
        raise ValueError("packed_dot_product_attention: qkv has shape %s, kv_heads=%r; it is [B, T, 3, N, H], or with kv_heads=K "
                         "[B, T, N + 2 * K, H], N a multiple of K" % (qkv.shape, kv_heads))
    if qkv.dtype not in _DTYPES:
        raise Error("UNIMPLEMENTED", "packed_dot_product_attention: qkv is %s; the kernels take float32, float16 and bfloat16"
                    % qkv.dtype)
    batch, tokens, width, depth = qkv.shape
    try:
        mask_kind, window = _sight(bool(is_causal), local_window_size)
    except NotImplementedError as error:
        raise Error("UNIMPLEMENTED", "packed_dot_product_attention: %s" % error) from None
    modifier, tensors = _score_modifier(score_mod, score_values)
    extra = _Extra(_bias(bias, mask, (batch, width - 2 * kv_heads, tokens, tokens), qkv.dtype), None,
                   _lengths("seq_lengths", seq_lengths, batch), _dropout_state(dropout_rate, dropout_seed), *tensors)
    attributes = dict(scale=1 / math.sqrt(depth) if scale is None else float(scale), kv_heads=kv_heads, mask=mask_kind,
                      window=window, dropout=float(dropout_rate), **modifier)
    problem = _Problem(_PACKED, [qkv], extra, tuple(sorted(attributes.items())), bool(deterministic))
    return _by_kernels(problem, dropout_generator, return_residual, False)


def _by_jax(query, key, value, bias, mask, implementation, own, given):
    """jax.nn's, for what it knows."""
    unknown = sorted(name for name, used in own.items() if used)
    if unknown:
        raise Error("UNIMPLEMENTED", "dot_product_attention by jax.nn: it has no %s; leave out fallback and implementation"
                    % ", ".join(unknown))
    implementation = implementation if implementation in ("xla", "cudnn") else None
    given = {name: value for name, value in given.items() if name != "return_residual" or value}
    return jax.nn.dot_product_attention(query, key, value, bias, mask, implementation=implementation, **given)


# ---- arguments to operands and attributes ----

def _problem(query, key, value, bias, mask, *, scale, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size,
             return_residual, layout, dropout_rate, dropout_seed, score_mod, score_values, deterministic):
    """A _Problem."""
    if layout not in _LAYOUTS:
        raise ValueError("dot_product_attention: layout=%r; it is \"BTNH\" or \"BNTH\"" % (layout,))
    heads_last = layout == "BTNH"
    arrays = [jnp.asarray(x) for x in (query, key, value)]
    _check_arrays(*arrays, heads_last)
    arrays = [x[None] if x.ndim == 3 else x for x in arrays]
    query, key, _ = arrays
    batch, queries, heads = query.shape[0], query.shape[1 if heads_last else 2], query.shape[2 if heads_last else 1]
    keys = key.shape[1 if heads_last else 2]
    mask_kind, window = _sight(is_causal, local_window_size)
    modifier, tensors = _score_modifier(score_mod, score_values)
    lengths = _both([_lengths("query_seq_lengths", query_seq_lengths, batch),
                     _lengths("key_value_seq_lengths", key_value_seq_lengths, batch)], (queries, keys), batch)
    extra = _Extra(_bias(bias, mask, (batch, heads, queries, keys), query.dtype), *lengths,
                   _dropout_state(dropout_rate, dropout_seed), *tensors)
    attributes = dict(scale=1 / math.sqrt(query.shape[-1]) if scale is None else float(scale), layout=_LAYOUTS[layout],
                      mask=mask_kind, window=window, dropout=float(dropout_rate), **modifier)
    return _Problem((_FORWARD, _BACKWARD), arrays, extra, tuple(sorted(attributes.items())), bool(deterministic))


def _check_arrays(query, key, value, heads_last, dtypes=_DTYPES):
    shapes = "query %s, key %s, value %s" % (query.shape, key.shape, value.shape)
    if query.ndim not in (3, 4) or not query.ndim == key.ndim == value.ndim:
        raise ValueError("dot_product_attention: %s; all need the four axes of the layout, or all but the batch" % shapes)
    if key.shape[:-1] != value.shape[:-1] or query.shape[-1] != key.shape[-1] or query.shape[:-3] != key.shape[:-3]:
        raise ValueError("dot_product_attention: %s; key and value differ in the last axis only, and query has the batch and the "
                         "last axis of key" % shapes)
    axis = -2 if heads_last else -3
    if key.shape[axis] == 0 or query.shape[axis] % key.shape[axis]:
        raise ValueError("dot_product_attention: %s; query heads must be a multiple of key heads" % shapes)
    if not query.dtype == key.dtype == value.dtype:
        raise NotImplementedError("query is %s, key %s, value %s; the kernels take one dtype" % (query.dtype, key.dtype, value.dtype))
    if query.dtype not in dtypes:
        raise NotImplementedError("query is %s; the kernels take %s" % (query.dtype, ", ".join(jnp.dtype(d).name for d in dtypes)))
    if 0 in key.shape:
        raise NotImplementedError("%s; the kernels want keys" % shapes)


def _sight(is_causal, local_window_size):
    """The attributes mask and window."""
    if is_causal not in (True, False, "bottom_right"):
        raise ValueError("dot_product_attention: is_causal=%r; it is False, True or \"bottom_right\"" % (is_causal,))
    kind = {False: "none", True: "causal", "bottom_right": "causal_bottom_right"}[is_causal]
    if local_window_size is None:
        return kind, -1
    left, right = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
    if left < 0 or right < 0:
        raise ValueError("dot_product_attention: local_window_size=%r; sizes are not negative" % (local_window_size,))
    if kind == "none" and right != 0:
        raise NotImplementedError("local_window_size=%r looks %d keys ahead; without is_causal the kernels take a right size of 0"
                                  % (local_window_size, right))
    return ("causal" if kind == "none" else kind), int(left)


def _bias(bias, mask, shape, dtype):
    """bias and mask as one bias[B or 1, N or 1, T, S]."""
    if bias is None and mask is None:
        return None
    for name, array in (("bias", bias), ("mask", mask)):
        dims = (1,) * (4 - jnp.ndim(array)) + jnp.shape(array) if array is not None else ()
        if len(dims) > 4 or any(d not in (1, full) for d, full in zip(dims, shape)):
            raise ValueError("dot_product_attention: %s has shape %s; it needs to broadcast to %s" % (name, jnp.shape(array), shape))
    if mask is not None and jnp.asarray(mask).dtype != jnp.bool_:
        raise ValueError("dot_product_attention: mask is %s; it must be boolean, and what is added to scores is `bias`"
                         % jnp.asarray(mask).dtype)
    made = jnp.zeros((), dtype) if bias is None else jnp.asarray(bias).astype(dtype)
    if mask is not None:
        made = jnp.where(mask, made, jnp.asarray(_HIDDEN.get(jnp.dtype(dtype).name, -1e30), dtype))
    dims = (1,) * (4 - made.ndim) + made.shape
    return jnp.broadcast_to(made.reshape(dims), dims[:2] + shape[2:])


def _lengths(name, lengths, batch):
    if lengths is None:
        return None
    lengths = jnp.asarray(lengths)
    if lengths.shape != (batch,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise ValueError("dot_product_attention: %s is %s%s; it needs to be int32[%d]"
                         % (name, lengths.dtype, list(lengths.shape), batch))
    return lengths.astype(jnp.int32)


def _both(lengths, full, batch):
    """Both or neither, as cuDNN's plans take them."""
    if all(x is None for x in lengths):
        return lengths
    return [jnp.full(batch, most, jnp.int32) if x is None else x for x, most in zip(lengths, full)]


def _dropout_state(rate, seed):
    if isinstance(rate, jax.core.Tracer) or not 0 <= rate <= 1:
        raise ValueError("dot_product_attention: dropout_rate=%r; it is a Python number from 0 to 1" % (rate,))
    if rate == 0:
        return None
    if seed is None:
        raise ValueError("dot_product_attention: dropout_rate=%r needs a dropout_seed" % (rate,))
    if jnp.issubdtype(getattr(seed, "dtype", jnp.int32), jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    seed = jnp.asarray(seed)
    if seed.dtype != jnp.uint32 or seed.shape not in ((2,), (4,)):
        raise ValueError("dot_product_attention: dropout_seed is %s%s; it is uint32[2], uint32[4] or a key of jax.random"
                         % (seed.dtype, list(seed.shape)))
    return jnp.concatenate([seed, jnp.zeros(4 - len(seed), jnp.uint32)])


def _score_modifier(score_mod, values):
    """Attributes of the modifier, and its two tensors."""
    if score_mod is None:
        if values:
            raise TypeError("dot_product_attention: unknown arguments %s" % ", ".join(sorted(values)))
        return {}, (None, None)
    known = {mod["name"]: mod for mod in getattr(default_bundle().op(_FORWARD), "score_mods", ())}
    if score_mod not in known:
        raise ValueError("dot_product_attention: score_mod=%r; the bundle has %s" % (score_mod, ", ".join(known) or "none"))
    scalars, tensors = known[score_mod]["scalars"], [tensor["name"] for tensor in known[score_mod]["tensors"]]
    if sorted(values) != sorted(scalars + tensors):
        raise TypeError("dot_product_attention: score_mod=%r takes %s, given are %s"
                        % (score_mod, ", ".join(scalars + tensors) or "nothing", ", ".join(sorted(values)) or "none"))
    traced = [name for name in scalars if isinstance(values[name], jax.core.Tracer)]
    if traced:
        raise Error("INVALID_ARGUMENT", "dot_product_attention: %s of score_mod=%r is a traced value, but scalars are part of the "
                    "compiled program, and their gradient is not computed; pass a Python number" % (traced[0], score_mod))
    arrays = [jnp.asarray(values[name], jnp.float32).reshape(-1) for name in tensors]
    return ({"score_mod": score_mod, "score_scalars": tuple(float(values[name]) for name in scalars)}, (*arrays, None, None)[:2])


# ---- where the kernels are legal ----

def _where_legal(problem, own_kernels, plain):
    """The kernels on the platforms where both ops are legal for this problem, jax.nn on the others."""
    legal = [_is_legal(kind, problem) for kind in (HOST, CUDA)]
    if all(legal):
        return own_kernels()
    if not any(legal):
        return plain()
    platforms = dict(zip(("cpu", "cuda"), (own_kernels if fine else plain for fine in legal)))
    return jax.lax.platform_dependent(**platforms, default=plain)


def _is_legal(kind, problem, bias_gradients=(False,)):
    """Whether the forward and the backward op have a variant for this problem on a kind of device."""
    attributes = dict(problem.attributes)
    arrays = tuple(_spec.operand(x) for x in problem.arrays)
    extra = tuple(_spec.operand(x) for x in _extra_operands(problem.ops, problem.extra))
    dtype, (batch, first, second, _) = arrays[0]
    if problem.ops == _PACKED:
        second -= 2 * attributes["kv_heads"]
    o = (dtype, (batch, first, second, arrays[-1][1][3]))
    stats = ("f32", (batch, first, second) if attributes.get("layout") == "bhsd" else (batch, second, first))
    (forward, backward), bundle = problem.ops, default_bundle()
    asked = [(forward, arrays + extra, dict(attributes, with_stats=True))]
    for bias_gradient in bias_gradients:
        more = dict(attributes, deterministic=problem.deterministic, bias_gradient=bias_gradient)
        asked.append((backward, arrays + (o, o, stats) + extra, more))
    for op, operands, given in asked:
        operands = operands[:len(bundle.op(op).operands)]
        try:
            bundle.infer(op, operands, bundle.normal_attributes(op, given), kind)
        except Error as error:
            if error.tag not in ("NOT_FOUND", "INVALID_ARGUMENT"):
                raise
            return False
    return True


def _by_kernels(problem, dropout_generator, *how):
    """With the dropout that is asked for, or cuDNN's where there is a choice and its plans are in the bundle."""
    if dropout_generator not in (None, "own", "cudnn"):
        raise ValueError("dot_product_attention: dropout_generator=%r; it is None, \"own\" or \"cudnn\"" % (dropout_generator,))
    own = functools.partial(_run, problem, *how)
    if problem.extra.dropout_state is None or dropout_generator == "own":
        return own()
    problem = problem._replace(attributes=tuple(sorted((*problem.attributes, ("generator", "cudnn")))))
    cudnn = functools.partial(_run, problem, *how)
    if dropout_generator == "cudnn":
        return cudnn()
    bias_gradients = (False,) if problem.extra.bias is None else (False, True)
    return jax.lax.platform_dependent(cuda=cudnn, default=own) if _is_legal(CUDA, problem, bias_gradients) else own()


# ---- the ops ----

@jax.tree_util.register_static
class _Known(frozenset):
    """Names, as a part of what the forward pass saves that is no array."""


def _run(problem, return_residual, unbatched):
    arrays, extra = _same_axes(tuple(problem.arrays), problem.extra)
    out, stats = _attention(problem.ops, problem.attributes, problem.deterministic, return_residual, arrays, extra)
    out = out[0] if unbatched else out
    if not return_residual:
        return out
    residual = jax.lax.stop_gradient(jnp.swapaxes(stats, 1, 2).astype(out.dtype))
    return out, residual[0] if unbatched else residual


def _same_axes(arrays, extra):
    """Inside shard_map all operands vary over the same axes; the gradient of one that did not is summed over them."""
    leaves, tree = jax.tree.flatten((arrays, extra))
    return jax.tree.unflatten(tree, same_axes(leaves))


def _call(op, operands, attributes, **more):
    return call(default_bundle(), op, *operands, **dict(attributes), **more)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _attention(ops, attributes, deterministic, with_stats, arrays, extra):
    # Always with stats, which cost next to nothing: a problem is then the same with and without gradients.
    out, stats = _call(ops[0], _operands(ops, arrays, extra), attributes, with_stats=True)
    return out, stats if with_stats else None


def _extra_operands(ops, extra):
    """Those that the ops have: queries and keys of packed ones have the same lengths."""
    return tuple(x for name, x in extra._asdict().items() if ops != _PACKED or name != "q_lengths")


def _operands(ops, arrays, extra):
    """In the op's order; absent ones at the end are left out."""
    operands = [*arrays, *_extra_operands(ops, extra)]
    while operands[-1] is None:
        operands.pop()
    return operands


def _attention_forward(ops, attributes, deterministic, with_stats, arrays, extra):
    arrays = tuple(x.value for x in arrays)
    wanted = _Known(name for name, x in extra._asdict().items() if x is not None and x.perturbed)
    extra = _Extra(*(None if x is None else x.value for x in extra))
    tensors = sorted(wanted & {"score_tensor0", "score_tensor1"})
    if tensors:
        raise Error("UNIMPLEMENTED", "differentiating dot_product_attention: the gradient of a tensor of score_mod=%r is not "
                    "computed; keep it out of what is differentiated (jax.lax.stop_gradient)" % dict(attributes)["score_mod"])
    out, stats = _call(ops[0], _operands(ops, arrays, extra), attributes, with_stats=True)
    return (out, stats if with_stats else None), (arrays, out, stats, extra, wanted)


def _attention_backward(ops, attributes, deterministic, with_stats, saved, cotangents):
    arrays, out, stats, extra, wanted = saved
    dout = cotangents[0]
    if isinstance(dout, SymbolicZero):
        return None, None
    *gradients, dbias = _call(ops[1], _operands(ops, (*arrays, out, dout, stats), extra), attributes,
                              deterministic=deterministic, bias_gradient="bias" in wanted)
    return tuple(gradients), _Extra(dbias, *(None for _ in extra[1:]))


_attention.defvjp(_attention_forward, _attention_backward, symbolic_zeros=True)
