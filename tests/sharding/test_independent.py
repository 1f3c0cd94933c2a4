"""Promise: what a manifest calls independent is: parts of a problem, computed alone, are the parts of its result, for every op of
kernels/ and every cut that it declares."""

import jax
import numpy as np
import pytest

import kbundle.jax as kbj
from kbundle import _spec
from kbundle._bundle import HOST
from sharding.problems import FAMILIES

# Ops whose results need all of the problem; all others declare something.
WHOLE = {"permutation.row_id_map", "permutation.make_chunk_sort_map", "router.topk_rows", "attention.sdpa_fp8_forward",
         "quantize.amax", "quantize.per_tensor", "quantize.per_tensor_transpose", "quantize.per_tile", "quantize.mxfp8",
         "quantize.per_block_transpose", "quantize.per_block_activation", "quantize.per_block_activation_gradient",
         "quantize.per_tensor_activation", "quantize.per_tensor_activation_gradient", "quantize.per_tensor_grouped"}


def inferred(bundle, op, operands, attributes):
    return bundle.infer(op, tuple(_spec.operand(x) for x in operands), bundle.normal_attributes(op, attributes), HOST)


def run(bundle, op, operands, attributes):
    results = kbj.call(bundle, op, *operands, **attributes)
    return [None if result is None else np.asarray(result) for result in (results if isinstance(results, tuple) else (results,))]


def parts_of(cut, operands, parts):
    """The operands of each part."""
    axes = cut["operands"] + [-1] * len(operands)
    for part in range(parts):
        yield [x if x is None else np.split(np.asarray(x), parts, axis)[part] if axis >= 0
               else np.zeros_like(x) if part and at in cut["once"] else x
               for at, (x, axis) in enumerate(zip(operands, axes))]


def joined(cut, results):
    """The results of the whole problem, from lists of those of its parts."""
    for at, parts in enumerate(zip(*results)):
        if parts[0] is None:
            yield None
        elif cut["results"][at] >= 0:
            yield np.concatenate(parts, cut["results"][at])
        elif at in cut["sums"]:
            yield sum(parts)
        else:
            for part in parts[1:]:
                np.testing.assert_array_equal(part, parts[0], err_msg="result %d differs between parts" % at)
            yield parts[0]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_parts_of_a_problem_are_the_parts_of_its_result(kernels, family):
    cuts = 0
    for op, operands, attributes in family():
        whole = run(kernels, op, operands, attributes)
        found = inferred(kernels, op, operands, attributes)["cuts"]
        assert found, (op, attributes)
        for cut in found:
            results = [run(kernels, op, part, attributes) for part in parts_of(cut, operands, 2)]
            for at, (result, wanted) in enumerate(zip(joined(cut, results), whole)):
                if wanted is not None and wanted.dtype == np.uint8:
                    np.testing.assert_array_equal(result, wanted, err_msg="%s %s %s result %d" % (op, attributes, cut, at))
                elif wanted is not None:
                    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-5, err_msg="%s %s %s result %d" % (op, attributes, cut, at))
            cuts += 1
    assert cuts >= 4


def test_every_op_of_the_kernels_is_divided_here(kernels):
    tried = {op for family in FAMILIES for op, _, _ in family()}
    assert tried | WHOLE == {op.name for op in kernels.ops}


def test_dropout_and_modifiers_that_look_at_heads_are_not_divided(kernels):
    q = np.zeros((2, 4, 2, 8), np.float32)
    state, slope = np.zeros(4, np.uint32), np.zeros(2, np.float32)
    for extra, more in (([None, None, None, state], dict(dropout=0.5)),
                        ([None] * 4 + [slope], dict(score_mod="alibi"))):
        assert inferred(kernels, "attention.sdpa_forward", [q, q, q, *extra], dict(scale=1.0, **more))["cuts"] == []


def test_a_mask_of_bits_is_not_cut_within_a_byte(kernels):
    a, b = np.zeros((4, 8), np.float32), np.zeros((8, 200), np.float32)
    how = dict(out_dtype="f32", epilogue="relu", with_aux=True)
    assert [cut["results"][0] for cut in inferred(kernels, "matmul.matmul", [a, b], how)["cuts"]] == [0]
    assert [cut["results"][0] for cut in inferred(kernels, "matmul.matmul", [a, np.zeros((8, 256), np.float32)], how)["cuts"]] == [0, 1]


def test_a_loop_free_batch_of_two_dims_is_cut_along_each(kernels):
    found = inferred(kernels, "softmax.scaled_forward", [jax.ShapeDtypeStruct((4, 1, 6, 8), np.float32)], {})["cuts"]
    assert [cut["operands"] for cut in found] == [[0], [2]]
