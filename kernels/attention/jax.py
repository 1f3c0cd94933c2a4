"""Attention as a differentiable JAX function: kbj.dot_product_attention, where kbj is kbundle.jax.

It runs the ops of the default bundle (kbundle.use). What they mean, corner cases included, is in README.md beside this
file. Everything but arrays is part of the compiled program.
"""

import collections
import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from kbundle import Error, _spec, default_bundle
from kbundle._bundle import CUDA, HOST
from kbundle_kernels.attention_arguments import (DTYPES, LAYOUTS, Known, both, check_arrays, dropout_state, lengths_of, one_bias, scale_of,
                                                  score_modifier, sight)
from kbundle_kernels.attention_sinks import gradient_of_sinks, sinks_of, with_sinks
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed, same_axes

__all__ = ["dot_product_attention", "packed_dot_product_attention"]

_FORWARD, _BACKWARD = "attention.sdpa_forward", "attention.sdpa_backward"
_PACKED = "attention.sdpa_packed_forward", "attention.sdpa_packed_backward"

# Operands after query, key and value, by their names in the op, and sinks, which no op takes; None where absent.
_Extra = collections.namedtuple("_Extra", "bias q_lengths kv_lengths dropout_state score_tensor0 score_tensor1 sinks", defaults=(None,))

# ops: forward and backward; arrays: query, key and value, or what holds them; attributes of the forward op as a sorted tuple.
_Problem = collections.namedtuple("_Problem", "ops arrays extra attributes deterministic")


def dot_product_attention(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, query_seq_lengths=None,
                          key_value_seq_lengths=None, local_window_size=None, implementation=None, return_residual=False,
                          layout="BTNH", dropout_rate=0.0, dropout_seed=None, dropout_generator=None, score_mod=None,
                          deterministic=False, fallback=None, sinks=None, bottom_right_diagonal=False, **score_values):
    """softmax(scale * query key^T + bias) value: jax.nn.dot_product_attention, with its names, layout and meaning.

    query[B, T, N, H], key[B, S, K, H], value[B, S, K, V] or the same without B; K divides N. bias broadcasts to
    [B, N, T, S] and is rounded to query's dtype. Gradients flow to query, key, value, bias and sinks.

    is_causal           also "bottom_right": the last query sees the last key (of the sequence lengths, where given)
    mask                boolean, broadcasts to [B, N, T, S]; it is added to the scores, as a bias is, and as large
    local_window_size   left, or (left, right): keys further than that from a query's own, number for number, are not seen;
                        one size is both, and None none. is_causal hides what is ahead, whatever right says
    bottom_right_diagonal   a query's own key is counted from the last query and the last key (of the sequence lengths, where
                        given), for windows and for is_causal
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
    sinks               floats [N], or one number: a score of each head that belongs to no key, and takes its share of
                        every softmax. 0.0 is the softmax with an offset of one, exp(s) / (1 + sum(exp(s)))
    deterministic       gradients of the same inputs are the same bits
    implementation      "xla", "cudnn": jax.nn's own
    fallback            "jax": what no kernel takes is computed by jax.nn, instead of an error

    A query that sees no key gives 0 here and the mean of all values in jax.nn.
    """
    where = "dot_product_attention"
    deterministic, return_residual, dropout_rate = _switches(where, deterministic, return_residual, dropout_rate, dropout_generator)
    implementation = _arguments.choice(where, "implementation", implementation, (None, "kbundle", "xla", "cudnn"))
    fallback = _arguments.choice(where, "fallback", fallback, (None, "jax"))
    layout = _arguments.choice(where, "layout", layout, tuple(LAYOUTS))
    is_causal = _arguments.choice(where, "is_causal", is_causal, (False, True, "bottom_right"))
    bottom_right_diagonal = _arguments.flag(where, "bottom_right_diagonal", bottom_right_diagonal)
    given = dict(scale=scale, is_causal=is_causal, query_seq_lengths=query_seq_lengths, key_value_seq_lengths=key_value_seq_lengths,
                 local_window_size=local_window_size, return_residual=return_residual)
    own = dict(layout=layout != "BTNH", dropout_rate=bool(dropout_rate), score_mod=score_mod is not None,
               is_causal=is_causal not in (True, False), sinks=sinks is not None, bottom_right_diagonal=bottom_right_diagonal)
    own["local_window_size without a bound"] = isinstance(local_window_size, (tuple, list)) and None in local_window_size
    plain = functools.partial(_by_jax, query, key, value, bias, mask, implementation, own, given)
    if implementation not in (None, "kbundle"):
        return plain()
    try:
        problem = _problem(query, key, value, bias, mask, layout=layout, dropout_rate=dropout_rate, dropout_seed=dropout_seed,
                           score_mod=score_mod, score_values=score_values, deterministic=deterministic, sinks=sinks,
                           bottom_right_diagonal=bottom_right_diagonal, **given)
    except NotImplementedError as error:
        if fallback == "jax":
            return plain()
        raise Error("UNIMPLEMENTED", "dot_product_attention: %s; fallback=\"jax\" computes it by jax.nn" % error) from None
    own_kernels = functools.partial(_by_kernels, problem, dropout_generator, return_residual, jnp.ndim(query) == 3)
    return own_kernels() if fallback is None else _where_legal(problem, own_kernels, plain)


def packed_dot_product_attention(qkv, bias=None, mask=None, *, kv_heads=None, scale=None, is_causal=False, seq_lengths=None,
                                 local_window_size=None, return_residual=False, dropout_rate=0.0, dropout_seed=None,
                                 dropout_generator=None, score_mod=None, deterministic=False, sinks=None, **score_values):
    """dot_product_attention of queries, keys and values that lie in one array, which no kernel copies, nor its gradient.

    qkv[B, T, 3, N, H]; or with kv_heads=K qkv[B, T, N + 2 * K, H]: of a token first N heads of queries, then K of keys,
    then K of values. The rest means what it means there; is_causal is True or False.
    """
    where, qkv = "packed_dot_product_attention", jnp.asarray(qkv)
    deterministic, return_residual, dropout_rate = _switches(where, deterministic, return_residual, dropout_rate, dropout_generator)
    is_causal = _arguments.flag(where, "is_causal", is_causal)
    kv_heads = None if kv_heads is None else _arguments.integer(where, "kv_heads", kv_heads, least=1)
    if qkv.ndim == 5 and kv_heads is None and qkv.shape[2] == 3:
        kv_heads = qkv.shape[3]
        qkv = qkv.reshape(*qkv.shape[:2], 3 * kv_heads, qkv.shape[4])
    if qkv.ndim != 4 or not kv_heads or qkv.shape[2] <= 2 * kv_heads or qkv.shape[2] % kv_heads:
        raise ValueError("packed_dot_product_attention: qkv has shape %s, kv_heads=%r; it is [B, T, 3, N, H], or with kv_heads=K "
                         "[B, T, N + 2 * K, H], N a multiple of K" % (qkv.shape, kv_heads))
    if qkv.dtype not in DTYPES:
        raise Error("UNIMPLEMENTED", "packed_dot_product_attention: qkv is %s; the kernels take float32, float16 and bfloat16"
                    % qkv.dtype)
    batch, tokens, width, depth = qkv.shape
    seen = sight(where, is_causal, local_window_size)
    modifier, tensors = score_modifier(where, score_mod, score_values)
    extra = _Extra(one_bias(where, bias, mask, (batch, width - 2 * kv_heads, tokens, tokens), qkv.dtype), None,
                   lengths_of(where, "seq_lengths", seq_lengths, batch), dropout_state(where, dropout_rate, dropout_seed), *tensors,
                   sinks_of(where, sinks, width - 2 * kv_heads))
    attributes = dict(scale=scale_of(where, scale, depth), kv_heads=kv_heads, dropout=dropout_rate, **seen, **modifier)
    problem = _Problem(_PACKED, [qkv], extra, tuple(sorted(attributes.items())), deterministic)
    return _by_kernels(problem, dropout_generator, return_residual, False)


def _switches(where, deterministic, return_residual, dropout_rate, dropout_generator):
    """The first three, checked; the last is checked."""
    _arguments.choice(where, "dropout_generator", dropout_generator, (None, "own", "cudnn"))
    return (_arguments.flag(where, "deterministic", deterministic), _arguments.flag(where, "return_residual", return_residual),
            _arguments.number(where, "dropout_rate", dropout_rate, 0, 1))


def _by_jax(query, key, value, bias, mask, implementation, own, given):
    """jax.nn's, for what it knows."""
    unknown = sorted(name for name, used in own.items() if used)
    if unknown:
        raise Error("UNIMPLEMENTED", "dot_product_attention by jax.nn: it has no %s; leave out fallback and implementation"
                    % ", ".join(unknown))
    implementation = implementation if implementation in ("xla", "cudnn") else None
    given = {name: value for name, value in given.items() if name != "return_residual" or value}
    return jax.nn.dot_product_attention(query, key, value, bias, mask, implementation=implementation, **given)


def _problem(query, key, value, bias, mask, *, scale, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size,
             return_residual, layout, dropout_rate, dropout_seed, score_mod, score_values, deterministic, sinks,
             bottom_right_diagonal):
    """A _Problem."""
    where = "dot_product_attention"
    heads_last = layout == "BTNH"
    arrays = [jnp.asarray(x) for x in (query, key, value)]
    check_arrays(where, *arrays, heads_last)
    arrays = [x[None] if x.ndim == 3 else x for x in arrays]
    query, key, _ = arrays
    batch, queries, heads = query.shape[0], query.shape[1 if heads_last else 2], query.shape[2 if heads_last else 1]
    keys = key.shape[1 if heads_last else 2]
    seen = sight(where, is_causal, local_window_size, bottom_right_diagonal)
    modifier, tensors = score_modifier(where, score_mod, score_values)
    lengths = both([lengths_of(where, "query_seq_lengths", query_seq_lengths, batch),
                    lengths_of(where, "key_value_seq_lengths", key_value_seq_lengths, batch)], (queries, keys), batch)
    extra = _Extra(one_bias(where, bias, mask, (batch, heads, queries, keys), query.dtype), *lengths,
                   dropout_state(where, dropout_rate, dropout_seed), *tensors, sinks_of(where, sinks, heads))
    attributes = dict(scale=scale_of(where, scale, query.shape[-1]), layout=LAYOUTS[layout], dropout=dropout_rate,
                      **seen, **modifier)
    return _Problem((_FORWARD, _BACKWARD), arrays, extra, tuple(sorted(attributes.items())), deterministic)


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
    forward, backward = problem.ops
    asked = [(forward, arrays + extra, dict(attributes, with_stats=True))]
    for bias_gradient in bias_gradients:
        more = dict(attributes, deterministic=problem.deterministic, bias_gradient=bias_gradient)
        asked.append((backward, arrays + (o, o, stats) + extra, more))
    for op, operands, given in asked:
        bundle = default_bundle(op)
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

def _run(problem, return_residual, unbatched):
    arrays, extra = _placed(problem)
    out, stats = _attention(problem.ops, problem.attributes, problem.deterministic, return_residual, arrays, extra)
    out = out[0] if unbatched else out
    if not return_residual:
        return out
    residual = jax.lax.stop_gradient(jnp.swapaxes(stats, 1, 2).astype(out.dtype))
    return out, residual[0] if unbatched else residual


def _placed(problem):
    """Arrays and extra, where the forward op wants them: the gradient of one that was elsewhere goes back there."""
    leaves, structure = jax.tree.flatten((tuple(problem.arrays), problem.extra))
    arrays, extra = jax.tree.unflatten(structure, same_axes(leaves))
    operands = placed(None, problem.ops[0], *_operands(problem.ops, arrays, extra), **dict(problem.attributes))
    operands = [x for x in operands if x is not None] + [extra.sinks] * (extra.sinks is not None)
    return jax.tree.unflatten(structure, operands)


def _call(op, operands, attributes, **more):
    return call(None, op, *operands, **dict(attributes), **more)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _attention(ops, attributes, deterministic, with_stats, arrays, extra):
    # Always with stats, which cost next to nothing: a problem is then the same with and without gradients.
    out, stats = _forward(ops, attributes, arrays, extra)
    return out, stats if with_stats else None


def _forward(ops, attributes, arrays, extra):
    out, stats = _call(ops[0], _operands(ops, arrays, extra), attributes, with_stats=True)
    return (out, stats) if extra.sinks is None else with_sinks(out, stats, extra.sinks, _turned(attributes))


def _turned(attributes):
    """Whether heads come behind tokens, which in statistics are before them."""
    return dict(attributes).get("layout") != "bhsd"


def _extra_operands(ops, extra):
    """Those that the ops have: queries and keys of packed ones have the same lengths."""
    return tuple(x for name, x in extra._asdict().items() if name != "sinks" and (ops != _PACKED or name != "q_lengths"))


def _operands(ops, arrays, extra):
    """In the op's order; absent ones at the end are left out."""
    operands = [*arrays, *_extra_operands(ops, extra)]
    while operands[-1] is None:
        operands.pop()
    return operands


def _attention_forward(ops, attributes, deterministic, with_stats, arrays, extra):
    arrays = tuple(x.value for x in arrays)
    wanted = Known(name for name, x in extra._asdict().items() if x is not None and x.perturbed)
    extra = _Extra(*(None if x is None else x.value for x in extra))
    tensors = sorted(wanted & {"score_tensor0", "score_tensor1"})
    if tensors:
        raise Error("UNIMPLEMENTED", "differentiating dot_product_attention: the gradient of a tensor of score_mod=%r is not "
                    "computed; keep it out of what is differentiated (jax.lax.stop_gradient)" % dict(attributes)["score_mod"])
    out, stats = _forward(ops, attributes, arrays, extra)
    return (out, stats if with_stats else None), (arrays, out, stats, extra, wanted)


def _attention_backward(ops, attributes, deterministic, with_stats, saved, cotangents):
    arrays, out, stats, extra, wanted = saved
    dout = cotangents[0]
    if isinstance(dout, SymbolicZero):
        return None, None
    *gradients, dbias = _call(ops[1], _operands(ops, (*arrays, out, dout, stats), extra), attributes,
                              deterministic=deterministic, bias_gradient="bias" in wanted)
    of_sinks = gradient_of_sinks(out, dout, stats, extra.sinks, _turned(attributes)) if "sinks" in wanted else None
    return tuple(gradients), _Extra(dbias, *[None] * (len(extra) - 2), of_sinks)


_attention.defvjp(_attention_forward, _attention_backward, symbolic_zeros=True)
