"""Small problems of every op that a manifest calls independent along something, as (op, operands, attributes).

Sizes differ wherever they may, so that a dim that is taken for another one does not fit; all are even where a cut may be."""

import ml_dtypes
import numpy as np

import kbundle.jax as kbj


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def softmax():
    x, dy = random(4, 6, 8), random(4, 6, 8, seed=1)
    yield "softmax.scaled_forward", [x], dict(scale=0.5)
    yield "softmax.scaled_backward", [dy, x], dict(scale=0.5)
    x, dy = random(4, 6, 8, 8), random(4, 6, 8, 8, seed=1)
    yield "softmax.scaled_causal_forward", [x], dict(scale=0.5)
    yield "softmax.scaled_causal_backward", [dy, x], dict(scale=0.5)
    for batches, heads in ((4, 6), (1, 6), (4, 1), (1, 1)):
        mask = random(batches, heads, 10, 8) > 0
        yield "softmax.scaled_masked_forward", [random(4, 6, 10, 8), mask], dict(scale=0.5)
    yield "softmax.scaled_masked_backward", [dy, x], dict(scale=0.5)


def matmul():
    rows, columns, depth = 6, 256, 10
    shape = {True: lambda a, b: (b, a), False: lambda a, b: (a, b)}
    bias, c, aux = random(columns), random(2, rows, columns), random(2, rows, columns, seed=1)
    mask = np.random.default_rng(0).integers(0, 256, (2, rows, columns // 8), dtype=np.uint8)
    for trans_a in (False, True):
        for trans_b in (False, True):
            a, b = random(2, *shape[trans_a](rows, depth)), random(2, *shape[trans_b](depth, columns))
            how = dict(out_dtype="f32", trans_a=trans_a, trans_b=trans_b, alpha=0.5)
            yield "matmul.matmul", [a, b], how
            yield "matmul.matmul", [a[0], b[0]], how
            yield "matmul.matmul", [a, b, c, bias], dict(how, beta=2.0)
            for gradient in "ab":
                yield "matmul.matmul", [a, b], dict(how, bias_gradient=gradient)
            for epilogue in ("relu", "gelu"):
                yield "matmul.matmul", [a, b, None, bias], dict(how, epilogue=epilogue, with_aux=True)
            yield "matmul.matmul", [a, b, None, None, aux], dict(how, epilogue="dgelu", bias_gradient="d")
            yield "matmul.matmul", [a, b, None, None, None, mask], dict(how, epilogue="drelu", bias_gradient="d")


def permutation():
    tokens, experts, hidden = 8, 3, 10
    routing = np.random.default_rng(0).integers(0, 2, (tokens, experts), dtype=np.uint8)
    rows = int(routing.sum()) + 1
    probs, x, y = np.abs(random(tokens, experts)) * routing, random(tokens, hidden), random(rows, hidden)
    row_id_map = np.asarray(kbj.call(None, "permutation.row_id_map", routing))
    yield "permutation.permute_with_mask_map", [x, row_id_map, probs], dict(num_out_tokens=rows)
    yield "permutation.unpermute_with_mask_map", [y, row_id_map], {}
    yield "permutation.unpermute_with_mask_map", [y, row_id_map, probs, random(rows)], {}
    yield "permutation.unpermute_backward_with_merging_probs", [x, row_id_map, y, probs], {}
    order = np.random.default_rng(0).permutation(tokens).astype(np.int32)
    for forward in (False, True):
        yield "permutation.sort_chunks_by_map", [x, order, random(tokens)], dict(is_forward=forward)


def grouped():
    sizes = np.array([3, 0, 5], np.int32)
    x, dy, bias = random(9, 10), random(9, 6), random(3, 6)
    for trans_w in (False, True):
        w = random(3, *((6, 10) if trans_w else (10, 6)))
        for added in (None, bias):
            yield "grouped.matmul", [x, w, sizes, added], dict(out_dtype="f32", trans_w=trans_w)
    codes = [np.asarray(array).astype(ml_dtypes.float8_e4m3fn) for array in (x, random(3, 6, 10))]
    for added in (None, bias):
        yield "grouped.scaled_matmul", [*codes, np.full((1, 1), 0.5, np.float32), np.abs(random(3, 1, 1)), sizes, added], dict(
            out_dtype="f32", scales="tensor")
    yield "grouped.weight_gradient", [x, dy, sizes], dict(out_dtype="f32")
    yield "grouped.sum_rows", [dy, sizes], {}


def norm():
    x, dy, dsum, gamma, beta = random(4, 6, 16), random(4, 6, 16, seed=1), random(4, 6, 16, seed=2), random(16), random(16, seed=1)
    for residual in (None, dsum):
        yield "norm.rmsnorm_forward", [x, gamma, residual], dict(epsilon=0.01)
        yield "norm.layernorm_forward", [x, gamma, beta, residual], dict(zero_centered_gamma=True)
        mu, rsigma = x.mean(-1), 1 / x.std(-1)
        yield "norm.rmsnorm_backward", [dy, x, rsigma, gamma, residual], dict(zero_centered_gamma=True)
        yield "norm.layernorm_backward", [dy, x, mu, rsigma, gamma, residual], {}
        yield "norm.rmsnorm_quantize", [x, gamma, residual, None], dict(out_dtype="e4m3")
        yield "norm.layernorm_quantize", [x, gamma, beta, residual, None], dict(out_dtype="e5m2", power_of_two=True)


def cross_entropy():
    logits, dloss, lse = random(4, 6, 16), random(4, 6), random(4, 6, seed=1) + 3
    labels = np.random.default_rng(0).integers(0, 16, (4, 6)).astype(np.int32)
    labels[1, 2] = -100
    yield "cross_entropy.loss_forward", [logits, labels], dict(label_smoothing=0.1)
    yield "cross_entropy.loss_backward", [logits, labels, lse, dloss], dict(z_loss=0.01)
    for op in ("loss_and_gradient", "loss_and_gradient_in_place"):
        yield "cross_entropy." + op, [logits, labels, dloss], {}
        yield "cross_entropy." + op, [logits, labels, None], {}
    yield "cross_entropy.reduced_forward", [logits, labels], dict(reduction="sum")  # a mean is of all rows, and is not cut
    yield "cross_entropy.reduced_and_gradient", [logits, labels, np.float32(0.75)], dict(reduction="sum")
    for share in (None, np.float32(1 / 23)):
        yield "cross_entropy.reduced_backward", [logits, labels, lse, np.float32(0.75), share], {}


def attention():
    tensor = [None, None]
    for layout in ("bshd", "bhsd"):
        for kv_heads, bias, lengths, more in ((2, (2, 4), False, {}), (1, (1, 4), True, dict(mask="causal")), (4, (2, 1), False, {}),
                                              (2, (1, 1), True, dict(mask="causal_bottom_right", window=3)),
                                              (2, (2, 1), True, dict(mask="bottom_right", window=3, window_right=2)),
                                              (2, None, False, dict(score_mod="softcap", score_scalars=(2.0,)))):
            shape = lambda tokens, heads, depth: (2, tokens, heads, depth) if layout == "bshd" else (2, heads, tokens, depth)
            q, k, v = random(*shape(6, 4, 8)), random(*shape(10, kv_heads, 8)), random(*shape(10, kv_heads, 16))
            extra = [None if bias is None else random(*bias, 6, 10),
                     *([np.array([6, 5], np.int32), np.array([7, 10], np.int32)] if lengths else [None, None]), None, *tensor]
            how = dict(scale=0.3, layout=layout, **more)
            yield "attention.sdpa_forward", [q, k, v, *extra], dict(how, with_stats=True)
            o, stats = kbj.call(None, "attention.sdpa_forward", q, k, v, *extra, **how, with_stats=True)
            yield ("attention.sdpa_backward", [q, k, v, o, random(*o.shape, seed=1), stats, *extra],
                   dict(how, bias_gradient=bias is not None))


def packed_attention():
    for bias in ((2, 4), (1, 1)):
        qkv, extra = random(2, 6, 8, 8), [random(*bias, 6, 6), np.array([6, 5], np.int32), None, None, None]
        how = dict(scale=0.3, kv_heads=2, mask="causal")
        yield "attention.sdpa_packed_forward", [qkv, *extra], dict(how, with_stats=True)
        o, stats = kbj.call(None, "attention.sdpa_packed_forward", qkv, *extra, **how, with_stats=True)
        yield "attention.sdpa_packed_backward", [qkv, o, random(*o.shape, seed=1), stats, *extra], dict(how, bias_gradient=True)


def ragged_attention():
    for kv_heads, bias in ((2, None), (1, (1, 4)), (2, (2, 1))):
        q, k, v = random(12, 4, 8), random(14, kv_heads, 8), random(14, kv_heads, 16)
        lengths = [np.array(of, np.int32) for of in ([4, 7], [6, 5])] if kv_heads == 1 else [None, None]
        more = [None if bias is None else random(*bias, 8, 8), None]  # dropout: over all devices it is one whole
        extra = [np.array([0, 5, 12], np.int32), np.array([0, 6, 14], np.int32), *lengths, *more, None, None]
        how = dict(scale=0.3, max_queries=8, max_keys=8, mask="causal")
        yield "attention.sdpa_ragged_forward", [q, k, v, *extra], dict(how, with_stats=True)
        o, stats = kbj.call(None, "attention.sdpa_ragged_forward", q, k, v, *extra, **how, with_stats=True)
        yield ("attention.sdpa_ragged_backward", [q, k, v, o, random(*o.shape, seed=1), stats, *extra],
               dict(how, bias_gradient=bias is not None))


def paged_attention():
    for layout, pool in (("pshd", (6, 3, 2)), ("hpsd", (2, 6, 3))):
        q, k, v = random(2, 5, 4, 8), random(*pool, 8), random(*pool, 16)
        pages, lengths = np.array([[3, 0, 5], [1, 4, 2]], np.int32), np.array([8, 5], np.int32)
        yield "attention.paged_attention", [q, k, v, lengths, pages], dict(scale=0.3, layout=layout, mask="causal_bottom_right", with_stats=True)


def quantize():
    codes = random(6, 8).astype(ml_dtypes.float8_e4m3fn)
    yield "quantize.dequantize", [codes, np.array([0.5], np.float32)], dict(out_dtype="f32")
    yield "quantize.dequantize", [codes.reshape(2, 6, 4), np.array([0.5], np.float32)], dict(out_dtype="f32")
    yield "quantize.per_group", [random(6, 200)], dict(out_dtype="e4m3")
    yield "quantize.update_scale", [np.abs(random(4, 7)), np.abs(random(4)), np.abs(random(4, seed=1))], dict(format="e4m3")


def router():
    logits, dprobs, bias = random(4, 6, 16), random(4, 6, 16, seed=1), random(16)
    for how in (dict(use_pre_softmax=True), dict(num_groups=4, group_topk=2, map="bits")):
        yield "router.topk", [logits], dict(how, k=4, dense="map" in how)
    yield "router.topk", [logits, bias], dict(k=4, score_function="sigmoid", map="bytes")
    indices = np.argsort(logits, axis=-1)[..., :3].astype(np.int32)
    for score_function in ("softmax", "sigmoid"):
        how = dict(score_function=score_function)
        yield "router.topk_backward", [logits, indices, dprobs], how
        yield "router.topk_backward", [logits, indices, None, random(4, 6, 3)], how
        yield "router.scores", [logits], dict(how, k=3, map="bytes")
        yield "router.scores_backward", [dprobs, logits], how
    yield "router.aux_loss", [np.abs(random(24, 16)), np.arange(16, dtype=np.int32)], dict(k=2, coefficient=0.1, total_num_tokens=24)


FAMILIES = [softmax, matmul, grouped, norm, cross_entropy, permutation, quantize, router, attention, packed_attention,
            ragged_attention, paged_attention]
