"""Promise: kbj.moe, its experts divided among devices inside shard_map, is the whole layer, gradients included, with one sum over devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import kbundle.jax as kbj
from sharding.collectives import collectives
from sharding.problems import random

pytestmark = pytest.mark.usefixtures("kernels")
TOKENS, D, F, E, K = 50, 32, 48, 16, 3


def test_experts_divided_among_eight_devices():
    x, logits, w_in, w_out = random(TOKENS, D), random(TOKENS, E), random(E, D, 2 * F) / 6, random(E, F, D) / 7
    mesh, split = Mesh(np.array(jax.devices()), ("experts",)), P("experts")
    whole = lambda *arrays: kbj.moe(*arrays, K)
    divided = jax.shard_map(functools.partial(kbj.moe, k=K, axis_name="experts"), mesh=mesh, in_specs=(P(), P(), split, split), out_specs=P())
    np.testing.assert_allclose(jax.jit(divided)(x, logits, w_in, w_out), whole(x, logits, w_in, w_out), rtol=1e-4, atol=1e-4)
    assert collectives(divided, x, logits, w_in, w_out) == {"all-reduce": 1}
    loss = lambda layer: lambda *arrays: (layer(*arrays).astype(jnp.float32) ** 2).sum()
    wanted = jax.grad(loss(whole), range(4))(x, logits, w_in, w_out)
    found = jax.jit(jax.grad(loss(divided), range(4)))(x, logits, w_in, w_out)
    for mine, theirs in zip(found, wanted):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)
