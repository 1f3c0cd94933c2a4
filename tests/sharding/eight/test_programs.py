"""Promise: a program whose calls are divided is a program like any other: serialized, exported, donated to, rematerialized, mapped by
pmap and shard_map over some axes, it computes the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import PartitionSpec as P

import kbundle.jax as kbj
from sharding.collectives import collectives
from sharding.problems import random

pytestmark = pytest.mark.usefixtures("kernels")
X = random(8, 4, 16)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_divided_executable_is_serialized_and_loaded(put):
    x = put(X, "data")
    packed = serialize_executable.serialize(jax.jit(kbj.scaled_softmax).lower(x).compile())
    close(serialize_executable.deserialize_and_load(*packed, execution_devices=jax.devices())(x), jax.nn.softmax(X))


def test_a_divided_program_is_found_in_the_persistent_cache_and_no_other(put, tmp_path):
    settings = {"jax_remove_custom_partitioning_ptr_from_cache_key": True, "jax_compilation_cache_dir": str(tmp_path),
                "jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    try:
        x, entries = put(X, "data"), []
        for scale in (0.5, 0.5, 0.25):
            jax.clear_caches()
            close(jax.jit(lambda x: kbj.scaled_softmax(x, scale))(x), jax.nn.softmax(scale * X))
            entries.append(len([path for path in tmp_path.iterdir() if "lambda" in path.name and path.name.endswith("-cache")]))
        assert entries == [1, 1, 2]
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_an_exported_program_of_sharded_operands_keeps_its_result(put):
    x = put(X, "data")
    exported = jax.export.export(jax.jit(kbj.scaled_softmax), disabled_checks=kbj.disabled_checks())(x)
    close(jax.jit(jax.export.deserialize(exported.serialize()).call)(x), jax.nn.softmax(X))


def test_a_sharded_operand_is_donated(put):
    x = put(X, "data")
    close(jax.jit(kbj.scaled_softmax, donate_argnums=0)(x), jax.nn.softmax(X))
    assert x.is_deleted()


@pytest.mark.parametrize("policy", ["everything_saveable", "nothing_saveable", "dots_saveable"])
def test_rematerialized_layers_have_the_same_gradients(put, policy):
    x, w, bias = put(random(8, 32), "data"), put(random(32, 64), None, "model"), put(random(64), "model")
    loss = lambda layer: lambda x, w, bias: (jax.checkpoint(layer, policy=getattr(jax.checkpoint_policies, policy))(x, w, bias) ** 2).sum()
    ours = jax.jit(jax.grad(loss(lambda *arrays: kbj.dense(*arrays, "gelu")), (0, 1, 2)))(x, w, bias)
    theirs = jax.jit(jax.grad(loss(lambda x, w, bias: jax.nn.gelu(x @ w + bias)), (0, 1, 2)))(x, w, bias)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3), ours, theirs)


def test_a_branch_and_pmap_compute_their_own_parts(put):
    either = jax.jit(lambda flag, x: jax.lax.cond(flag, kbj.scaled_softmax, lambda x: 2 * x, x))
    close(either(True, put(X, "data")), jax.nn.softmax(X))
    assert collectives(lambda x: either(True, x), put(X, "data")) == {}
    close(jax.pmap(kbj.scaled_softmax)(X), jax.nn.softmax(X))


def test_shard_map_over_one_axis_leaves_the_other_to_jit(mesh, put):
    some = jax.shard_map(kbj.scaled_softmax, mesh=mesh, in_specs=P("data"), out_specs=P("data"), axis_names={"data"})
    close(jax.jit(some)(put(X, "data", "model")), jax.nn.softmax(X))


def test_weak_types_and_wide_integers_change_nothing(put):
    weak = jax.lax.broadcast(jnp.asarray(0.25), X.shape)
    assert weak.weak_type
    close(jax.jit(kbj.scaled_softmax)(put(weak, "data")), jax.nn.softmax(weak))
    rows = X.reshape(-1, X.shape[-1])
    labels = np.arange(len(rows)) % X.shape[-1]
    with jax.enable_x64(True):
        wide = jnp.asarray(labels, jnp.int64)
        assert wide.dtype == jnp.int64
        found = jax.jit(lambda x, y: kbj.cross_entropy(x, y, reduction="none"))(put(rows, "data"), put(wide, "data"))
        scaled = jax.jit(lambda x: kbj.scaled_softmax(x, np.float64(0.5)))(put(X, "data"))
    assert (found.dtype, scaled.dtype) == (jnp.float32, jnp.float32)
    close(found, -jax.nn.log_softmax(rows)[jnp.arange(len(rows)), labels])
    close(scaled, jax.nn.softmax(0.5 * X))
