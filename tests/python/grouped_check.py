"""What tests of grouped products share: numbers, and the products by their definition."""

import jax
import jax.numpy as jnp
import numpy as np


def values(*shape, seed=0, dtype=np.float32):
    return jnp.asarray(np.random.default_rng([seed, *shape]).normal(size=shape), dtype)


def formula(lhs, rhs, sizes, bias=None):
    """Every row times the matrix of its group, in float32; what ragged_dot means where sizes are as it wants them."""
    ends = jnp.minimum(jnp.cumsum(jnp.clip(sizes, 0, lhs.shape[0])), lhs.shape[0])
    group = jnp.searchsorted(ends, jnp.arange(lhs.shape[0]), side="right")
    mine = jax.nn.one_hot(group, rhs.shape[0], dtype=jnp.float32)  # none for rows past the end
    y = jnp.einsum("mk,mg,gkn->mn", lhs.astype(jnp.float32), mine, rhs.astype(jnp.float32))
    return y if bias is None else y + mine @ bias.astype(jnp.float32)
