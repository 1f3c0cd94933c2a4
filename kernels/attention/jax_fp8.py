"""Attention of 8-bit floats: kbj.fp8_dot_product_attention, the forward pass alone.

It runs the op of the default bundle (kbundle.use); what it means, scales included, is in README.md beside this file.
Everything but arrays is part of the compiled program.
"""

import functools

import jax
import jax.numpy as jnp

from kbundle import Error, _dtypes
from kbundle_kernels.attention import _call
from kbundle_kernels.attention_arguments import LAYOUTS, check_arrays, lengths_of, scale_of, sight
from kbundle.jax import _arguments

__all__ = ["fp8_dot_product_attention"]


def fp8_dot_product_attention(query, key, value, *, query_descale, key_descale, value_descale, probability_scale=256.0, output_scale,
                              scale=None, is_causal=False, query_seq_lengths=None, key_value_seq_lengths=None, local_window_size=None,
                              layout="BTNH"):
    """(output, largest probability, largest output): dot_product_attention of float8_e4m3fn or float8_e5m2.

    What an array holds times its descale is the number; probabilities times probability_scale, and outputs times
    output_scale, are rounded to query's dtype. Scales are numbers or f32 scalars on the device. The largest magnitudes
    are those before scaling, f32. There is no gradient: asking for one is an error.
    """
    where = "fp8_dot_product_attention"
    _arguments.choice(where, "layout", layout, tuple(LAYOUTS))
    arrays = [jnp.asarray(x) for x in (query, key, value)]
    if arrays[0].ndim != 4:
        raise ValueError("fp8_dot_product_attention: query %s; it has the four axes of the layout" % (arrays[0].shape,))
    try:
        check_arrays(where, *arrays, layout == "BTNH", (jnp.float8_e4m3fn, jnp.float8_e5m2))
        seen = sight(where, is_causal, local_window_size, ahead=False)
    except NotImplementedError as error:
        raise Error("UNIMPLEMENTED", "fp8_dot_product_attention: %s" % error) from None
    batch = arrays[0].shape[0]
    scale_s = jnp.asarray(probability_scale, jnp.float32)
    numbers = [jnp.asarray(x, jnp.float32) for x in (query_descale, key_descale, value_descale, 1 / scale_s, scale_s, output_scale)]
    lengths = (lengths_of(where, "query_seq_lengths", query_seq_lengths, batch),
               lengths_of(where, "key_value_seq_lengths", key_value_seq_lengths, batch))
    attributes = dict(dtype=_dtypes.dtype_name(arrays[0].dtype), layout=LAYOUTS[layout], **seen,
                      scale=scale_of(where, scale, arrays[0].shape[-1]))
    return _fp8_attention(tuple(sorted(attributes.items())), *arrays, *numbers, *lengths)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _fp8_attention(attributes, *operands):
    operands = list(operands)
    while operands[-1] is None:
        operands.pop()
    return _call("attention.sdpa_fp8_forward", operands, attributes)[:3]


@_fp8_attention.defjvp
def _fp8_attention_jvp(attributes, operands, tangents):
    raise Error("UNIMPLEMENTED", "differentiating fp8_dot_product_attention: its gradient is not computed; keep it out of what is "
                "differentiated (jax.lax.stop_gradient)")
