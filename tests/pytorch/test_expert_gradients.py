"""Promise: the router, the routing of tokens to experts, whole layers of experts, ragged and packed attention for PyTorch mean what the formula
says in float64, and so do their gradients, also where only one of two results is used."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

from pytorch.formulas import TOLERANCE, attended, check, drawn  # noqa: E402

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402

F = torch.nn.functional
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
pytestmark = pytest.mark.usefixtures("kernels")


# ---- router ----

def weights_of(logits, indices, score_function, use_pre_softmax, scale):
    """What the chosen experts weigh."""
    if score_function == "sigmoid":
        chosen = torch.sigmoid(logits).gather(-1, indices)
        return scale * (chosen / chosen.sum(-1, keepdim=True) if indices.shape[-1] > 1 else chosen)
    if use_pre_softmax:
        return scale * torch.softmax(logits, -1).gather(-1, indices)
    return scale * torch.softmax(logits.gather(-1, indices), -1)


@DTYPES
@pytest.mark.parametrize("score_function, use_pre_softmax", [("softmax", False), ("softmax", True), ("sigmoid", False)])
@pytest.mark.parametrize("k", [1, 3])
def test_router(device, dtype, score_function, use_pre_softmax, k):
    how = dict(score_function=score_function, use_pre_softmax=use_pre_softmax, scaling_factor=1.5)
    [logits] = drawn(device, dtype, (5, 7, 8))
    chosen = kbt.route(logits, k, **how).indices.long().reshape(5, 7, k)
    weights = functools.partial(weights_of, indices=chosen, score_function=score_function, use_pre_softmax=use_pre_softmax, scale=1.5)
    check(lambda x: kbt.route(x, k, **how).weights, lambda x: weights(x).reshape(35, k), [logits], times=2)
    check(lambda x: kbt.router_topk(x, k, **how)[0], lambda x: torch.zeros_like(x).scatter(-1, chosen, weights(x)), [logits], times=2)
    _, routing_map = kbt.router_topk(logits, k, **how)
    assert torch.equal(routing_map, torch.zeros(5, 7, 8, dtype=torch.bool, device=device).scatter(-1, chosen, True))


@DTYPES
@pytest.mark.parametrize("score_function", ["softmax", "sigmoid"])
def test_scores_and_the_auxiliary_loss(device, dtype, score_function):
    def formula(x):
        return torch.softmax(x, -1) if score_function == "softmax" else torch.sigmoid(x) / torch.sigmoid(x).sum(-1, keepdim=True)
    [logits] = drawn(device, dtype, (3, 5, 8))
    check(lambda x: kbt.router_scores(x, 2, score_function=score_function)[0], formula, [logits], times=2)
    counts = torch.tensor([4, 0, 3, 1, 2, 5, 0, 0], device=device)
    check(lambda x: kbt.moe_aux_loss(x, counts, 2, 0.01), lambda x: 0.01 * 8 / (2 * 15 ** 2) * (x.sum((0, 1)) * counts).sum(), [logits])


def test_a_bias_of_experts_and_groups_count_for_the_choice(device):
    [logits] = drawn(device, torch.float32, (6, 8))
    bias = torch.tensor([9.0, 0, 0, 0, 0, 0, 0, 9], device=device, requires_grad=True)
    routing = kbt.route(logits, 2, score_function="sigmoid", expert_bias=bias, num_groups=4, group_topk=2)
    assert sorted(set(routing.indices.flatten().tolist())) == [0, 7]
    assert routing.tokens_per_expert.tolist() == [6, 0, 0, 0, 0, 0, 0, 6]


# ---- permutation ----

def routing(device, tokens, experts, seed=0):
    return (torch.rand(tokens, experts, generator=torch.Generator().manual_seed(seed)) < 0.4).to(device)


def places(routing_map):
    """(token, expert) of each row."""
    return routing_map.t().nonzero().flip(1).unbind(1)


@DTYPES
@pytest.mark.parametrize("with_probs", [False, True], ids=["", "probs"])
def test_tokens_go_to_experts_and_back(device, dtype, with_probs):
    routing_map = routing(device, 9, 4)
    tokens, experts = places(routing_map)
    x, *probs = drawn(device, dtype, (9, 16), *[(9, 4)] * with_probs)
    probs = [p.float() if dtype == torch.float16 else p for p in probs]

    def permuted(x, p=None):
        made = kbt.permute(x, routing_map, len(tokens) + 3, p)
        return made[0] if p is None else made[:2]

    def formula(x, p=None):
        rows = F.pad(x[tokens], (0, 0, 0, 3))
        return rows if p is None else (rows, F.pad(p[tokens, experts], (0, 3)))
    check(permuted, formula, [x, *probs])
    _, _, row_id_map = kbt.permute(x, routing_map, len(tokens))
    rows, = drawn(device, dtype, (len(tokens), 16), seed=5)
    check(lambda rows, p=None: kbt.unpermute(rows, row_id_map, p),
          lambda rows, p=None: torch.zeros(9, 16, dtype=rows.dtype, device=device).index_add(
              0, tokens, rows if p is None else rows * p[tokens, experts][:, None]), [rows, *probs], times=2)


def test_padding_passes_nothing_back_and_one_result_is_enough(device):
    routing_map = torch.ones(3, 2, dtype=torch.bool, device=device)
    x, probs = [t.requires_grad_() for t in drawn(device, torch.float32, (3, 4), (3, 2))]
    with torch.no_grad():
        probs[1, 1] = 0
    out, permuted, _ = kbt.permute(x, routing_map, 6, probs)
    assert not out[4].any() and permuted[4] == 0
    dout = torch.ones_like(out)
    dout[4] = float("nan")
    [dx] = torch.autograd.grad(out, [x], dout, retain_graph=True)
    assert dx[:, 0].tolist() == [2, 1, 2]
    dx, dprobs = torch.autograd.grad(permuted.sum(), [x, probs], allow_unused=True)
    assert dx is None and torch.equal(dprobs, torch.ones_like(dprobs))


@DTYPES
@pytest.mark.parametrize("with_probs", [False, True], ids=["", "probs"])
def test_chunks_are_sorted(device, dtype, with_probs):
    sizes, order = torch.tensor([2, 0, 3, 4], device=device), torch.tensor([3, 1, 0, 2], device=device)
    rows = torch.cat([torch.arange(9)[a:b] for a, b in ((5, 9), (2, 2), (0, 2), (2, 5))]).to(device)
    x, *probs = drawn(device, dtype, (3, 3, 16), *[(3, 3)] * with_probs)
    probs = [p.float() if dtype == torch.float16 else p for p in probs]
    check(lambda x, p=None: tuple(one for one in kbt.sort_chunks(x, sizes, order, p)[:2] if one is not None),
          lambda x, p=None: (x.reshape(9, 16)[rows], *([] if p is None else [p.flatten()[rows]])), [x, *probs])
    if with_probs:
        given = [t.requires_grad_() for t in (x, *probs)]
        _, permuted, _ = kbt.sort_chunks(given[0], sizes, order, given[1])
        dx, dprobs = torch.autograd.grad(permuted.sum(), given, allow_unused=True)
        assert dx is None and torch.equal(dprobs, torch.ones_like(dprobs))


# ---- layers of experts ----

@DTYPES
@pytest.mark.parametrize("gated", [False, True], ids=["", "gated"])
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu", torch.tanh])
def test_a_layer_of_experts(device, dtype, gated, activation):
    apply = {"silu": F.silu, "gelu": functools.partial(F.gelu, approximate="tanh"), "relu": torch.relu}.get(activation, activation)
    x, logits, w_in, w_out, b_in, b_out = drawn(device, dtype, (2, 5, 8), (2, 5, 4), (4, 8, 24 if gated else 12), (4, 12, 8),
                                                (4, 24 if gated else 12), (4, 8))
    chosen = kbt.route(logits, 2).indices.long()

    def formula(x, logits, w_in, w_out, b_in, b_out):
        tokens = x.flatten(0, 1)
        hidden = torch.einsum("td,edf->tef", tokens, w_in) + b_in
        if gated:
            first, second = hidden.chunk(2, -1)
            hidden = apply(first) * second
        else:
            hidden = apply(hidden)
        out = torch.einsum("tef,efd->ted", hidden, w_out) + b_out
        weights = torch.softmax(logits.flatten(0, 1).gather(1, chosen), -1)
        y = (out.gather(1, chosen[:, :, None].expand(-1, -1, 8)) * weights[:, :, None]).sum(1).reshape(x.shape)
        counts = torch.zeros(4, dtype=x.dtype, device=device).index_add(0, chosen.flatten(), torch.ones(20, dtype=x.dtype, device=device))
        return y, 0.1 * 4 / (2 * 10 ** 2) * (torch.softmax(logits, -1).sum((0, 1)) * counts).sum()
    check(lambda x, logits, w_in, w_out, b_in, b_out: kbt.moe(x, logits, w_in, w_out, 2, activation=activation, bias_in=b_in, bias_out=b_out,
                                                              aux_loss_coefficient=0.1),
          formula, [x, logits, w_in / 3, w_out / 3, b_in, b_out], times=4)


# ---- attention ----

@pytest.mark.parametrize("is_causal", [False, True, "bottom_right"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("gaps", [False, True], ids=["", "gaps"])
def test_ragged_attention(device, is_causal, with_bias, gaps):
    q, k, v, *bias = drawn(device, attended(device), (12, 4, 16), (14, 2, 16), (14, 2, 8), *[(2, 4, 7, 8)] * with_bias)
    offsets = [torch.tensor(one, device=device) for one in ((0, 5, 12), (0, 6, 14))]
    lengths = [torch.tensor(one, device=device) for one in ((4, 7), (6, 5))] if gaps else (None, None)
    ends = ((0, 4, 5, 12), (0, 6, 6, 11)) if gaps else ((0, 5, 5, 12), (0, 6, 6, 14))

    def formula(q, k, v, bias=None):
        out = torch.zeros(12, 4, 8, dtype=q.dtype, device=device)
        for b in range(2):
            (q0, q1), (k0, k1) = (one[2 * b:2 * b + 2] for one in ends)
            rows, keys = q1 - q0, k1 - k0
            hidden = torch.zeros(rows, keys, device=device, dtype=torch.bool)
            if is_causal:
                far = torch.arange(keys, device=device) - torch.arange(rows, device=device)[:, None]
                hidden = far > (keys - rows if is_causal == "bottom_right" else 0)
            scores = torch.einsum("qnh,knh->nqk", q[q0:q1], k[k0:k1].repeat_interleave(2, 1)) / 4
            scores = scores if bias is None else scores + bias[b, :, :rows, :keys]
            weights = torch.softmax(scores.masked_fill(hidden, -1e30), -1).masked_fill(hidden.all(-1)[:, None], 0)
            out = out.index_put((torch.arange(q0, q1, device=device),), torch.einsum("nqk,knv->qnv", weights, v[k0:k1].repeat_interleave(2, 1)))
        return out
    check(lambda q, k, v, bias=None: kbt.ragged_dot_product_attention(
        q, k, v, *offsets, max_query_length=7, max_key_value_length=8, query_lengths=lengths[0], key_value_lengths=lengths[1],
        is_causal=is_causal, attn_mask=bias), formula, [q, k, v, *bias], times=3)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_packed_attention(device, is_causal):
    [qkv] = drawn(device, attended(device), (2, 9, 3, 4, 16))
    check(functools.partial(kbt.packed_dot_product_attention, is_causal=is_causal),
          lambda x: F.scaled_dot_product_attention(*[one.transpose(1, 2) for one in x.unbind(2)], is_causal=is_causal).transpose(1, 2), [qkv],
          times=3)
    flat = torch.cat([qkv[:, :, 0], qkv[:, :, 1, :2], qkv[:, :, 2, :2]], 2)
    check(functools.partial(kbt.packed_dot_product_attention, kv_heads=2, is_causal=is_causal), lambda x: F.scaled_dot_product_attention(
        *[one.transpose(1, 2) for one in x.split([4, 2, 2], 2)], is_causal=is_causal, enable_gqa=True).transpose(1, 2), [flat], times=3)


def test_attention_on_pages_is_that_on_the_keys_they_hold(device):
    q, k, v = drawn(device, attended(device), (2, 4, 16), (2, 6, 8, 16), (2, 6, 8, 16))
    within = dict(rtol=0, atol=3 * TOLERANCE[q.dtype])
    pages, lengths = torch.tensor([[3, 0, 5], [1, 4, 2]], device=device), torch.tensor([20, 9], device=device)
    y, stats = kbt.paged_attention(q, k, v, lengths, pages, scale=None, return_residual=True)
    for b in range(2):
        keys, values = (one[:, pages[b]].flatten(1, 2)[:, :lengths[b]].repeat_interleave(2, 0).double() for one in (k, v))
        scores = torch.einsum("nh,nkh->nk", q[b].double(), keys) / 4
        torch.testing.assert_close(y[b].double(), torch.einsum("nk,nkv->nv", torch.softmax(scores, -1), values), **within)
        torch.testing.assert_close(stats[b].double(), scores.logsumexp(-1), **within)


# ---- what is wrong ----

X, HEADS, ENDS = torch.ones(4, 8), torch.ones(4, 2, 8), torch.tensor([0, 4])


@pytest.mark.parametrize("words, call", [
    ("require `k <= E` is false", lambda: kbt.route(X, 9)),
    ("give both or none", lambda: kbt.route(X, 2, num_groups=2)),
    ("is for score_function='sigmoid' only", lambda: kbt.route(X, 2, expert_bias=torch.ones(8))),
    ("routing_map is 'words'", lambda: kbt.router_topk(X, 2, routing_map="words")),
    ("it must be integers", lambda: kbt.moe_aux_loss(X, torch.ones(7, dtype=torch.int32), 2, 0.1)),
    ("one of both is given", lambda: kbt.permute(X, None, 4)),
    ("they differ in their last axis only", lambda: kbt.permute(X, torch.ones(3, 2), 4)),
    ("probs has shape", lambda: kbt.permute(X, torch.ones(4, 2), 4, torch.ones(4, 3))),
    ("row_id_map is torch.int32", lambda: kbt.permute(X, None, 4, row_id_map=torch.zeros(4, 4, dtype=torch.int32))),
    ("it needs to be int32", lambda: kbt.sort_chunks(X, torch.tensor([4.0]), torch.tensor([0]))),
    ("router_logits has shape", lambda: kbt.moe(X, torch.ones(4, 2), torch.ones(3, 8, 4), torch.ones(3, 4, 8), 2)),
    ("activation is 'tanh'", lambda: kbt.moe(X, torch.ones(4, 3), torch.ones(3, 8, 4), torch.ones(3, 4, 8), 2, activation="tanh")),
    ("give as many", lambda: kbt.ragged_dot_product_attention(HEADS, HEADS, HEADS, ENDS, torch.tensor([0, 2, 4]), max_query_length=4,
                                                              max_key_value_length=4)),
    ("is_causal is 'yes'", lambda: kbt.ragged_dot_product_attention(HEADS, HEADS, HEADS, ENDS, ENDS, max_query_length=4, max_key_value_length=4,
                                                                    is_causal="yes")),
    ("N a multiple of K", lambda: kbt.packed_dot_product_attention(torch.ones(1, 3, 5, 8), kv_heads=2)),
    ("layout is 'X'", lambda: kbt.paged_attention(HEADS, HEADS, HEADS, ENDS, ENDS, layout="X")),
])
def test_what_is_wrong_is_said(words, call):
    with pytest.raises((kbundle.Error, ValueError), match=words):
        call()


def test_maps_offsets_and_pages_that_lie_reach_no_memory():
    wild = torch.full((4, 5), 10**9, dtype=torch.int32)
    assert not kbt.unpermute(X, wild).any()
    assert not kbt.permute(X, None, 4, row_id_map=wild)[0].any()
    assert not kbt.sort_chunks(X, torch.tensor([10**9, -5]), torch.tensor([7, -1]))[0].any()
    far = torch.tensor([-7, 10**9])
    assert kbt.ragged_dot_product_attention(HEADS, HEADS, HEADS, far, far, max_query_length=4, max_key_value_length=4).isfinite().all()
    pages = torch.ones(1, 2, 3, 8)
    assert not kbt.paged_attention(HEADS[:2], pages, pages, far.abs(), torch.full((2, 1), 10**6)).any()
