"""Promise: kbj.paged_attention is softmax attention on the keys that lengths and pages say, whatever is in the rest of the pool; it
runs inside a jit whose cache grows, and no index reaches outside."""

import functools
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj
from python.formula import same_partial, wide

pytestmark = pytest.mark.usefixtures("platform", "kernels")
TOLERANCE = {np.dtype("float32"): 2e-5, np.dtype("float16"): 4e-3, np.dtype(jnp.bfloat16): 2e-2}
LENGTHS = [37, 1, 0, 23, 40]


def inputs(page=4, layout="KPSH", queries=None, heads=4, kv_heads=2, depth=16, depth_v=12, dtype=jnp.float32, pages_of=None):
    """q, pools whose unused pages are NaN, lengths and indices."""
    rng = np.random.default_rng(0)
    table = -(-max(LENGTHS) // page)
    count = len(LENGTHS) * table + 3
    indices = rng.permutation(count)[:len(LENGTHS) * table].reshape(len(LENGTHS), table).astype(np.int32)
    pools = []
    for d in (depth, depth_v):
        pool = np.full((count, page, kv_heads, d), np.nan, np.float32)
        pool[indices] = rng.normal(size=(len(LENGTHS), table, page, kv_heads, d))
        pool = np.moveaxis(pool, 2, 0) if layout == "KPSH" else pool
        pools.append(jnp.asarray(pool, pages_of or dtype))
    q = rng.normal(size=(len(LENGTHS), *([queries] if queries else []), heads, depth))
    return [jnp.asarray(q, dtype), *pools, jnp.asarray(LENGTHS, jnp.int32), jnp.asarray(indices)]


def formula(q, k_pages, v_pages, lengths, indices, layout="KPSH", scale=1.0, mask=lambda q, k, queries, length: k <= q + length - queries,
            known=None, cap=None):
    """In float64, by sequences and heads."""
    q, k_pages, v_pages = (wide(x) for x in (q, k_pages, v_pages))
    one = q.ndim == 3
    q = q[:, None] if one else q
    if layout == "KPSH":
        k_pages, v_pages = (np.moveaxis(x, 0, 2) for x in (k_pages, v_pages))
    group, out = q.shape[2] // k_pages.shape[2], np.zeros(q.shape[:3] + v_pages.shape[3:])
    for b, length in enumerate(np.asarray(lengths)):
        k, v = (x[np.asarray(indices)[b]].reshape(-1, *x.shape[2:])[:length] for x in (k_pages, v_pages))
        for t in range(q.shape[1]):
            sees = np.array([mask(t, i, q.shape[1], length) and (known is None or known[b, i]) for i in range(length)], bool)
            for h in range(q.shape[2] if sees.any() else 0):
                s = scale * (k[sees, h // group] @ q[b, t, h])
                p = np.exp(cap * np.tanh(s / cap) if cap else s)
                out[b, t, h] = p / p.sum() @ v[sees, h // group]
    return out[:, 0] if one else out


def near(found, wanted, tolerance):
    np.testing.assert_allclose(wide(found), wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("page", [1, 3, 16, 64])
@pytest.mark.parametrize("layout", ["KPSH", "PSKH"])
def test_pages_of_any_size_in_both_layouts(page, layout):
    given = inputs(page, layout)
    found = jax.jit(functools.partial(kbj.paged_attention, layout=layout, scale=0.3))(*given)
    near(found, formula(*given, layout=layout, scale=0.3), 2e-5)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("queries", [None, 1, 5])
def test_dtypes_and_queries(dtype, queries):
    given = inputs(queries=queries, dtype=dtype)
    found = kbj.paged_attention(*given, scale=None)
    assert found.dtype == dtype and found.shape == given[0].shape[:-1] + (12,)
    near(found, formula(*given, scale=0.25), TOLERANCE[dtype])


@pytest.mark.parametrize("options, mask", [
    ({"is_causal": False}, lambda q, k, queries, length: True),
    ({"is_causal": True}, lambda q, k, queries, length: k <= q),
    ({"local_window_size": 7}, lambda q, k, queries, length: 0 <= q + length - queries - k <= 7),
    ({"local_window_size": (2, 0), "is_causal": True}, lambda q, k, queries, length: 0 <= q - k <= 2)], ids=["all", "causal", "window", "both"])
def test_masks(options, mask):
    given = inputs(queries=3)
    near(kbj.paged_attention(*given, **options), formula(*given, mask=mask), 2e-5)


@pytest.mark.parametrize("window", [3, (3, 0)], ids=str)
def test_a_window_of_one_query_that_sees_all_ends_at_the_last_key(window):
    """And not at key 0, which is the query's own number; of several queries there is none."""
    given = inputs(queries=1)
    found = kbj.paged_attention(*given, is_causal=False, local_window_size=window)
    near(found, formula(*given, mask=lambda q, k, queries, length: length - 1 - k <= 3), 2e-5)
    with pytest.raises(kbundle.Error, match="paged_attention: local_window_size=.* with is_causal=False, of 3 queries"):
        kbj.paged_attention(*inputs(queries=3), is_causal=False, local_window_size=window)


def test_a_cap_is_the_modifier_softcap():
    given = inputs()
    found = kbj.paged_attention(*given, attn_logits_soft_cap=1.5)
    near(found, formula(*given, cap=1.5), 2e-5)
    assert np.array_equal(found, kbj.paged_attention(*given, score_mod="softcap", cap=1.5))
    with pytest.raises(ValueError, match="attn_logits_soft_cap and score_mod='softcap' are both given"):
        kbj.paged_attention(*given, attn_logits_soft_cap=1.5, score_mod="softcap", cap=1.5)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_pages_of_fp8_with_scales(dtype):
    q, k, v, lengths, indices = inputs(dtype=dtype, pages_of=jnp.float8_e4m3fn)
    found = jax.jit(functools.partial(kbj.paged_attention, scale=0.5, v_scale=0.25))(q, k, v, lengths, indices, k_scale=jnp.float32(2))
    near(found, 0.25 * formula(q, k, v, lengths, indices), TOLERANCE[dtype])


def test_an_index_that_is_no_page_hides_its_keys():
    q, k, v, lengths, indices = inputs()
    wild = np.random.default_rng(1).random(indices.shape) < 0.3
    nowhere = np.resize([-1, k.shape[1], 2**31 - 1, -2**31], indices.shape)
    found = kbj.paged_attention(q, k, v, lengths, jnp.where(wild, nowhere, indices))
    near(found, formula(q, k, v, lengths, indices, known=~np.repeat(wild, k.shape[2], axis=1)), 2e-5)
    assert not np.any(kbj.paged_attention(q, k, v, lengths, jnp.full_like(indices, -1)))
    lengths = jnp.asarray([-1, 2**31 - 1, -2**31, 5, 1000], jnp.int32)
    bounded = np.clip(lengths, 0, indices.shape[1] * k.shape[2])
    near(kbj.paged_attention(q, k, v, lengths, indices), formula(q, k, v, bounded, indices), 2e-5)


def test_residuals_put_two_halves_together():
    q, k, v, lengths, indices = inputs(queries=2)
    whole = kbj.paged_attention(q, k, v, lengths, indices, is_causal=False)
    half = indices.shape[1] // 2
    parts = [kbj.paged_attention(q, k, v, n, i, is_causal=False, return_residual=True) for n, i in
             ((jnp.minimum(lengths, half * 4), indices[:, :half]), (lengths - half * 4, indices[:, half:]))]
    assert parts[0][1].shape == q.shape[:3] and parts[0][1].dtype == jnp.float32
    weights = jax.nn.softmax(jnp.maximum(jnp.stack([stats for _, stats in parts]), -1e30), axis=0)
    near(sum(w[..., None] * out for w, (out, _) in zip(weights, parts)), wide(whole), 2e-5)


def test_a_cache_that_grows_inside_one_program():
    """Twenty tokens are written to the cache and attended to, one after another, in a loop that is traced once."""
    q, k, v, _, indices = inputs()
    rng = np.random.default_rng(2)
    tokens = [jnp.asarray(rng.normal(size=(20, *x.shape)), jnp.float32) for x in (q, np.zeros((5, 2, 16)), np.zeros((5, 2, 12)))]
    begin = jnp.asarray([0, 3, 7, 15, 20], jnp.int32)

    @jax.jit
    def run(k, v, lengths):
        def step(carry, token):
            k, v, lengths = carry
            at = indices[jnp.arange(5), lengths // 4], lengths % 4
            k = k.at[:, at[0], at[1]].set(jnp.swapaxes(token[1], 0, 1))
            v = v.at[:, at[0], at[1]].set(jnp.swapaxes(token[2], 0, 1))
            return (k, v, lengths + 1), kbj.paged_attention(token[0], k, v, lengths + 1, indices)
        return jax.lax.scan(step, (k, v, lengths), tokens)

    (k, v, lengths), outs = run(k, v, begin)
    for i in (0, 7, 19):
        near(outs[i], formula(tokens[0][i], k, v, begin + i + 1, indices), 2e-5)


def test_the_example_of_the_page_runs():
    page = pathlib.Path(__file__).resolve().parents[3] / "kernels/attention/README.md"
    [example] = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    names = {"jnp": jnp, "kbj": kbj}
    exec(example.replace("kbj.paged", "out = kbj.paged"), names)
    assert np.array_equal(names["out"], names["q"])  # the mean of ones


def test_vmap_export_and_shard_map():
    q, k, v, lengths, indices = inputs()
    found = jax.vmap(lambda q: kbj.paged_attention(q, k, v, lengths, indices))(jnp.stack([q, 2 * q]))
    near(found[1], formula(2 * q, k, v, lengths, indices), 2e-5)
    exported = jax.export.export(jax.jit(kbj.paged_attention), disabled_checks=kbj.disabled_checks())(q, k, v, lengths, indices)
    assert np.array_equal(exported.call(q, k, v, lengths, indices), kbj.paged_attention(q, k, v, lengths, indices))
    near(jax.jit(same_partial(kbj.paged_attention, scale=2.0))(q, k, v, lengths, indices), formula(2 * q, k, v, lengths, indices), 2e-5)


def test_there_is_no_gradient():
    q, *rest = inputs()
    with pytest.raises(kbundle.Error, match="differentiating paged_attention: its gradient is not computed"):
        jax.grad(lambda q: kbj.paged_attention(q, *rest).sum())(q)


def test_what_does_not_fit_is_told():
    q, k, v, lengths, indices = inputs()
    for wrong, error, text in [
            ((q[0], k, v, lengths, indices), ValueError, r"q is \[B, N, H\] or \[B, T, N, H\]"),
            ((q, k, v[:1], lengths, indices), ValueError, "differ in the last one only"),
            ((q[:, :3], k, v, lengths, indices), ValueError, "query heads are a multiple of the 2 heads"),
            ((q, k, v, lengths[:2], indices), ValueError, r"lengths is int32\[2\]; it needs to be int32\[5\]"),
            ((q, k, v, lengths, indices[:2]), ValueError, r"page_indices is int32\[2, 10\]; it needs to be int32\[5"),
            ((q, k, v, lengths, indices.astype(jnp.float32)), ValueError, "page_indices is float32"),
            ((q, k.astype(jnp.bfloat16), v.astype(jnp.bfloat16), lengths, indices), kbundle.Error, "k_pages bfloat16")]:
        with pytest.raises(error, match=text):
            kbj.paged_attention(*wrong)
    with pytest.raises(ValueError, match=r"k_scale has shape \(2,\); it is one number"):
        kbj.paged_attention(q, k, v, lengths, indices, k_scale=jnp.ones(2))
