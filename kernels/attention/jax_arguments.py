"""Arguments of attention's wrappers as operands and attributes of the ops, checked. `where` is the wrapper's name, for errors.

What is no argument of any attention is an error of kind ValueError; what is, but of no kernel, a NotImplementedError,
which the wrapper turns into kbundle's own or into a call of jax.nn.
"""

import math

import jax
import jax.numpy as jnp

from kbundle import Error, default_bundle
from kbundle.jax import _arguments

__all__ = []

LAYOUTS = {"BTNH": "bshd", "BNTH": "bhsd"}
DTYPES = jnp.float32, jnp.float16, jnp.bfloat16
_HIDDEN = {"float16": -3e4}  # what a mask adds to a score; of other dtypes -1e30
_FORWARD = "attention.sdpa_forward"


@jax.tree_util.register_static
class Known(frozenset):
    """Names, as a part of what a forward pass saves that is no array."""


def scale_of(where, scale, depth):
    """The attribute scale; None: 1 / sqrt(depth)."""
    return 1 / math.sqrt(depth) if scale is None else _arguments.number(where, "scale", scale)


def check_arrays(where, query, key, value, heads_last, dtypes=DTYPES):
    shapes = "query %s, key %s, value %s" % (query.shape, key.shape, value.shape)
    if query.ndim not in (3, 4) or not query.ndim == key.ndim == value.ndim:
        raise ValueError(where + ": %s; all need the four axes of the layout, or all but the batch" % shapes)
    if key.shape[:-1] != value.shape[:-1] or query.shape[-1] != key.shape[-1] or query.shape[:-3] != key.shape[:-3]:
        raise ValueError(where + ": %s; key and value differ in the last axis only, and query has the batch and the "
                         "last axis of key" % shapes)
    axis = -2 if heads_last else -3
    if key.shape[axis] == 0 or query.shape[axis] % key.shape[axis]:
        raise ValueError(where + ": %s; query heads must be a multiple of key heads" % shapes)
    if not query.dtype == key.dtype == value.dtype:
        raise NotImplementedError("query is %s, key %s, value %s; the kernels take one dtype" % (query.dtype, key.dtype, value.dtype))
    if query.dtype not in dtypes:
        raise NotImplementedError("query is %s; the kernels take %s" % (query.dtype, ", ".join(jnp.dtype(d).name for d in dtypes)))
    if 0 in key.shape and 0 not in key.shape[:-3]:  # an empty batch asks for nothing
        raise NotImplementedError("%s; the kernels want keys" % shapes)


def sight(where, is_causal, local_window_size, bottom_right_diagonal=False, ahead=True):
    """The attributes of which keys a query sees. ahead: whether the op has windows that look ahead."""
    is_causal = _arguments.choice(where, "is_causal", is_causal, (False, True, "bottom_right"))
    bottom_right = _arguments.flag(where, "bottom_right_diagonal", bottom_right_diagonal) or is_causal == "bottom_right"
    if local_window_size is None:
        sizes = None, None
    else:
        sizes = local_window_size if isinstance(local_window_size, (tuple, list)) else (local_window_size,) * 2
    if len(sizes) != 2:
        raise _arguments.refuse(where, "local_window_size", local_window_size, "one size or two, (left, right)")
    left, right = (-1 if size is None else _size(where, size) for size in sizes)
    if is_causal or right == 0:
        return {"mask": "causal_bottom_right" if bottom_right else "causal", "window": left}
    if left < 0 and right < 0:
        return {"mask": "none", "window": -1}
    if not ahead:
        raise NotImplementedError("local_window_size=%r looks ahead; without is_causal the kernels take a right size of 0"
                                  % (local_window_size,))
    return {"mask": "bottom_right" if bottom_right else "none", "window": left, "window_right": right}


def _size(where, size):
    found = _arguments.plain(size)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 2**31:
        raise _arguments.refuse(where, "local_window_size", size, "a number of keys from 0 to %d, or None: no bound" % (2**31 - 1))
    return found


def one_bias(where, bias, mask, shape, dtype):
    """bias and mask as one bias[B or 1, N or 1, T, S]."""
    if bias is None and mask is None:
        return None
    for name, array in (("bias", bias), ("mask", mask)):
        dims = (1,) * (4 - jnp.ndim(array)) + jnp.shape(array) if array is not None else ()
        if len(dims) > 4 or any(d not in (1, full) for d, full in zip(dims, shape)):
            raise ValueError(where + ": %s has shape %s; it needs to broadcast to %s" % (name, jnp.shape(array), shape))
    if mask is not None and jnp.asarray(mask).dtype != jnp.bool_:
        raise ValueError(where + ": mask is %s; it must be boolean, and what is added to scores is `bias`"
                         % jnp.asarray(mask).dtype)
    made = jnp.zeros((), dtype) if bias is None else jnp.asarray(bias).astype(dtype)
    if mask is not None:
        made = jnp.where(mask, made, jnp.asarray(_HIDDEN.get(jnp.dtype(dtype).name, -1e30), dtype))
    dims = (1,) * (4 - made.ndim) + made.shape
    return jnp.broadcast_to(made.reshape(dims), dims[:2] + shape[2:])


def lengths_of(where, name, lengths, batch):
    if lengths is None:
        return None
    lengths = jnp.asarray(lengths)
    if lengths.shape != (batch,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise ValueError(where + ": %s is %s%s; it needs to be int32[%d]"
                         % (name, lengths.dtype, list(lengths.shape), batch))
    return _arguments.int32(lengths)


def both(lengths, full, batch):
    """Both or neither, as the plans of cuDNN and FlashAttention-4's kernels of sequences with gaps take them."""
    if all(x is None for x in lengths):
        return lengths
    return [jnp.full(batch, most, jnp.int32) if x is None else x for x, most in zip(lengths, full)]


def dropout_state(where, rate, seed):
    """An uint32[4] of what the op draws from, or None where nothing is dropped. rate: checked."""
    if rate == 0:
        return None
    if seed is None:
        raise ValueError(where + ": dropout_rate=%r needs a dropout_seed" % (rate,))
    if jnp.issubdtype(getattr(seed, "dtype", jnp.int32), jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    seed = jnp.asarray(seed)
    if seed.dtype != jnp.uint32 or seed.shape not in ((2,), (4,)):
        raise ValueError(where + ": dropout_seed is %s%s; it is uint32[2], uint32[4] or a key of jax.random"
                         % (seed.dtype, list(seed.shape)))
    return jnp.concatenate([seed, jnp.zeros(4 - len(seed), jnp.uint32)])


def score_modifier(where, score_mod, values):
    """Attributes of the modifier, and its two tensors (f32, flat, or None)."""
    if score_mod is None:
        if values:
            raise TypeError(where + ": unknown arguments %s" % ", ".join(sorted(values)))
        return {}, (None, None)
    known = {mod["name"]: mod for mod in getattr(default_bundle(_FORWARD).op(_FORWARD), "expressions", ()) if mod["attribute"] == "score_mod"}
    if not isinstance(score_mod, str) or score_mod not in known:
        raise ValueError(where + ": score_mod=%r; the bundle has %s" % (score_mod, ", ".join(known) or "none"))
    scalars, tensors = known[score_mod]["scalars"], [tensor["name"] for tensor in known[score_mod]["tensors"]]
    if sorted(values) != sorted(scalars + tensors):
        raise TypeError(where + ": score_mod=%r takes %s, given are %s"
                        % (score_mod, ", ".join(scalars + tensors) or "nothing", ", ".join(sorted(values)) or "none"))
    traced = [name for name in scalars if isinstance(values[name], jax.core.Tracer)]
    if traced:
        raise Error("INVALID_ARGUMENT", where + ": %s of score_mod=%r is a traced value, but scalars are part of the "
                    "compiled program, and their gradient is not computed; pass a Python number" % (traced[0], score_mod))
    arrays = [jnp.asarray(values[name], jnp.float32).reshape(-1) for name in tensors]
    return ({"score_mod": score_mod, "score_scalars": tuple(_arguments.number(where, name, values[name]) for name in scalars)},
            (*arrays, None, None)[:2])
