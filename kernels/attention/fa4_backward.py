"""FlashAttention-4's backward for Hopper in three kernels: sums of o * dout (and a cleared dq in float), dk, dv and that dq, its rounding."""
import cutlass
import fa4  # first: it stands in for torch
import quack.dsl  # noqa: F401  which lets tensors be indexed with `...`
from fa4 import AuxData
from flash_attn.cute.flash_bwd_postprocess import FlashAttentionBackwardPostprocess
from flash_attn.cute.flash_bwd_preprocess import FlashAttentionBackwardPreprocess
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90

WARP_GROUPS = 2


def tiles(head, mask):
    """(queries, keys of a block, warp groups along dq's rows) on sm_90, as FlashAttention-4 chooses them up to 128 columns."""
    if head <= 64:
        return 128, 128, 2
    return 64 if mask != fa4.NO_MASK else 80, 128, 1


def whole(*tensors):
    return [one.like(align=16, divisible=8, dynamic=[3]) for one in tensors]


def sums(*tensors):
    return [one.like(align=16, divisible=4) for one in tensors]


def prepare(o, dout, products, stats, stats2, dq_sum, *, target, HEAD, MASK):
    kernel = FlashAttentionBackwardPreprocess(o.dtype, HEAD, HEAD, tiles(HEAD, MASK)[0])
    o, dout = whole(o, dout)
    products, stats2, dq_sum = sums(products, stats2, dq_sum)
    return kernel, (o, dout, products, stats, stats2, dq_sum, None, None, None, None, None, cutlass.Float32(1.0), None, None)


def gradients(q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, *, target, HEAD, MASK):
    tile_m, tile_n, rows = tiles(HEAD, MASK)
    kernel = FlashAttentionBackwardSm90(
        q.dtype, HEAD, HEAD, 1, MASK == fa4.CAUSAL, is_local=False, deterministic=False, tile_m=tile_m, tile_n=tile_n, Q_stage=2,
        dO_stage=2, PdS_stage=2, SdP_swapAB=True, dKV_swapAB=False, dQ_swapAB=tile_m % 64 != 0, AtomLayoutMSdP=1, AtomLayoutNdKV=2,
        AtomLayoutMdQ=rows, num_threads=(WARP_GROUPS + 1) * 128)
    q, k, v, dout, dk, dv = whole(q, k, v, dout, dk, dv)
    stats2, products, dq_sum = sums(stats2, products, dq_sum)
    return kernel, (q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, *[None] * 9, AuxData(None, None), None, None)


def finish(dq_sum, dq, scale, *, target, HEAD, MASK):
    tile_m, _, rows = tiles(HEAD, MASK)
    kernel = FlashAttentionBackwardPostprocess(dq.dtype, HEAD, 90, tile_m, WARP_GROUPS * 128, rows, tile_m % 64 != 0)
    dq_sum, = sums(dq_sum)
    dq, = whole(dq)
    return kernel, (dq_sum, dq, scale, None, None, None, None)
