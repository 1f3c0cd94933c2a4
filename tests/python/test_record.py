"""Promise: record_problems lists every problem that a model asks for, once, from lowering alone, for a platform
that this machine need not have."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj

BF16 = jnp.bfloat16


def block(parameters, x, mask):
    """A small transformer block: two attentions, one masked and one causal, and a router over tokens."""
    batch, length, width = x.shape
    heads = 4

    def attention(x, softmax, weights):
        q, k, v = (jnp.einsum("bld,dhe->bhle", x, weight.reshape(width, heads, -1)) for weight in weights)
        y = softmax(jnp.einsum("bhqe,bhke->bhqk", q, k))
        return jnp.einsum("bhqk,bhke->bqhe", y, v).reshape(x.shape)

    x = x + attention(x, lambda s: kbj.scaled_masked_softmax(s, mask, 0.25), parameters["masked"])
    x = x + attention(x, lambda s: kbj.scaled_causal_softmax(s, 0.25), parameters["causal"])
    gates = kbj.scaled_softmax(x @ parameters["router"])
    return x * gates.max(axis=-1, keepdims=True)


def shape(*dims, dtype=BF16):
    return jax.ShapeDtypeStruct(dims, dtype)


@pytest.fixture(scope="module")
def model(kernels):
    kbj.use(kernels)
    parameters = {"masked": [shape(64, 64)] * 3, "causal": [shape(64, 64)] * 3, "router": shape(64, 8)}
    return parameters, shape(2, 128, 64), shape(2, 1, 128, 128, dtype=jnp.uint8)


def names(problems):
    return sorted(problem["op"].removeprefix("softmax.") for problem in problems)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_block_asks_forward_for_three_problems_and_backward_for_six(model, platform):
    forward = kbj.record_problems(block, *model, platform=platform)
    assert names(forward) == ["scaled_causal_forward", "scaled_forward", "scaled_masked_forward"]
    gradient = jax.grad(lambda *operands: block(*operands).astype(jnp.float32).sum())
    both = kbj.record_problems(gradient, *model, platform=platform)
    assert names(both) == ["scaled_backward", "scaled_causal_backward", "scaled_causal_forward", "scaled_forward",
                           "scaled_masked_backward", "scaled_masked_forward"]
    assert {"op": "softmax.scaled_masked_forward", "attributes": {"scale": 0.25},
            "operands": {"x": "bf16[2,4,128,128]", "mask": "u8[2,1,128,128]"}} in both


def test_a_problem_asked_for_often_is_listed_once_and_again_by_the_next_recording(kernels):
    kbj.use(kernels)
    many = lambda x: sum(kbj.scaled_softmax(x + i, 0.5) for i in range(5))
    for _ in range(2):
        assert kbj.record_problems(many, shape(8, 64)) == [
            {"op": "softmax.scaled_forward", "operands": {"x": "bf16[8,64]"}, "attributes": {"scale": 0.5}}]


def test_what_jax_makes_of_the_program_counts(kernels):
    kbj.use(kernels)
    record = lambda function, *operands: [problem["operands"]["x"] for problem in
                                          kbj.record_problems(function, *operands)]
    assert record(jax.vmap(kbj.scaled_softmax), shape(3, 8, 64)) == ["bf16[3,8,64]"]
    assert record(jax.jit(kbj.scaled_softmax), shape(0, 64)) == []
    scanned = lambda x: jax.lax.scan(lambda carry, row: (carry, kbj.scaled_softmax(row)), 0, x)
    assert record(scanned, shape(7, 5, 64)) == ["bf16[5,64]"]
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:4]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    split = jax.shard_map(kbj.scaled_softmax, mesh=mesh, in_specs=spec, out_specs=spec)
    assert record(split, shape(8, 64)) == ["bf16[2,64]"]


def test_defaults_are_written_out_and_absent_operands_left_out(kernels, demo):
    kbj.use(kernels)
    default = kbj.record_problems(lambda x: kbj.call(kernels, "softmax.scaled_forward", x), shape(8, 64))
    assert default[0]["attributes"] == {"scale": 1.0}
    affine = lambda *operands: kbj.call(demo, "demo.affine", *operands)
    without, = kbj.record_problems(affine, shape(5, 70, dtype=jnp.float32), shape(70, dtype=jnp.float32))
    assert without["operands"] == {"x": "f32[5,70]", "gain": "f32[70]"}


def test_the_file_is_one_sorted_json_object_a_line_and_replaced_whole(kernels, tmp_path):
    kbj.use(kernels)
    problems = kbj.record_problems(lambda x, y: (kbj.scaled_softmax(x), kbj.scaled_causal_softmax(y)),
                                   shape(8, 64), shape(16, 16))
    path = tmp_path / "problems.jsonl"
    path.write_text("old")
    problems.save(path)
    lines = path.read_text().splitlines()
    assert lines == sorted(lines) and len(lines) == 2
    assert [json.loads(line) for line in lines] == sorted(problems, key=lambda p: json.dumps(p, sort_keys=True))
    assert list(tmp_path.iterdir()) == [path]


def test_recording_neither_runs_the_model_nor_outlives_itself(kernels):
    kbj.use(kernels)
    before = kernels.stats()["plans_made"]
    kbj.record_problems(kbj.scaled_softmax, shape(31, 77), platform="cpu")
    assert kernels.stats()["plans_made"] == before
    with pytest.raises(ZeroDivisionError):
        kbj.record_problems(lambda x: 1 // 0, shape(8, 64))
    recorded = kbj.record_problems(kbj.scaled_softmax, shape(8, 64))
    jax.jit(kbj.scaled_softmax).lower(np.ones((9, 64), np.float32))
    assert len(recorded) == 1


def test_what_cannot_be_recorded_says_so(kernels):
    kbj.use(kernels)
    with pytest.raises(kbundle.Error, match="none of cpu, cuda"):
        kbj.record_problems(kbj.scaled_softmax, shape(8, 64), platform="tpu")
    with pytest.raises(kbundle.Error, match="finite"):
        kbj.record_problems(functools.partial(kbj.scaled_softmax, scale=float("inf")), shape(8, 64))
