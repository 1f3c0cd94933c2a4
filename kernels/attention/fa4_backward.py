"""FlashAttention-4's backward for Hopper in kernels with sums in float between them: sums of o * dout (and a cleared dq), then dk, dv and
that dq, then roundings. Where query heads share a key head, dk and dv are sums of several blocks, too.
"""
import dataclasses

import cutlass
import fa4  # first: it stands in for torch
import quack.dsl  # noqa: F401  which lets tensors be indexed with `...`
from cutlass import cute
from cutlass.cute import FastDivmodDivisorV2
from fa4 import AuxData
from flash_attn.cute.flash_bwd_postprocess import FlashAttentionBackwardPostprocess
from flash_attn.cute.flash_bwd_preprocess import FlashAttentionBackwardPreprocess
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90

THREADS = 256  # that multiply


@dataclasses.dataclass
class Blocks:
    """What a block takes, as FlashAttention-4 chooses it on sm_90."""
    queries: int
    keys: int = 128
    stages: tuple = (2, 2, 2)      # of q, dout, and p with ds
    scores_turned: bool = True     # products whose operands change places
    keys_turned: bool = False
    queries_turned: bool = False
    key_groups: int = 2            # warp groups along the rows of dk and dv, of dq
    query_groups: int = 1
    one_group: bool = False        # which does all of dq

    @property
    def columns(self):
        return 64 if self.keys_turned else 32  # what sums' columns are rounded up to


def blocks(head, mask):
    if head == 64:
        return Blocks(128, query_groups=2)
    if head == 96:
        return Blocks(64, one_group=True)
    if head == 128:
        return Blocks(80, queries_turned=True) if mask == fa4.NO_MASK else Blocks(64)
    if head == 192:
        return Blocks(64, 96, (2, 2, 1), scores_turned=False, keys_turned=True)
    return Blocks(64, 48, (2, 1, 1), scores_turned=False, keys_turned=True, key_groups=1)


class GroupedGradients(FlashAttentionBackwardSm90):
    """How many query heads share a key head is divided out when it is launched: FlashAttention-4 compiles a kernel for each number."""

    def kernel(self, q, k, *rest):
        group = FastDivmodDivisorV2(cute.size(q, mode=[2]) // cute.size(k, mode=[2]))
        return super().kernel(q, k, *[group if isinstance(one, FastDivmodDivisorV2) else one for one in rest])


class FinishKeys:
    """The roundings of dk, times the scale of the scores, and of dv."""

    def __init__(self, make):
        self.round_dk, self.round_dv = make(), make()

    @cute.jit
    def __call__(self, dk_sum: cute.Tensor, dk: cute.Tensor, dv_sum: cute.Tensor, dv: cute.Tensor, scale: cutlass.Float32, stream):
        self.round_dk(dk_sum, dk, scale, None, None, None, None, stream=stream)
        self.round_dv(dv_sum, dv, cutlass.Float32(1.0), None, None, None, None, stream=stream)


def whole(*tensors):
    return [one.like(align=16, divisible=8, dynamic=[3]) for one in tensors]


def sums(*tensors):
    return [one.like(align=16, divisible=4) for one in tensors]


def prepare(o, dout, products, stats, stats2, dq_sum, *, target, HEAD, HEADV, MASK):
    of = blocks(HEAD, MASK)
    kernel = FlashAttentionBackwardPreprocess(o.dtype, HEAD, HEADV, of.queries, hdim_multiple_of=of.columns)
    o, dout = whole(o, dout)
    products, stats2, dq_sum = sums(products, stats2, dq_sum)
    return kernel, (o, dout, products, stats, stats2, dq_sum, None, None, None, None, None, cutlass.Float32(1.0), None, None)


def gradients(q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, window, *, target, HEAD, HEADV, MASK):
    of, grouped = blocks(HEAD, MASK), dk.dtype is cutlass.Float32
    kernel = (GroupedGradients if grouped else FlashAttentionBackwardSm90)(
        q.dtype, HEAD, HEADV, 2 if grouped else 1, MASK == fa4.CAUSAL, is_local=MASK == fa4.LOCAL, deterministic=False,
        tile_m=of.queries, tile_n=of.keys, Q_stage=of.stages[0], dO_stage=of.stages[1], PdS_stage=of.stages[2],
        SdP_swapAB=of.scores_turned, dKV_swapAB=of.keys_turned, dQ_swapAB=of.queries_turned, AtomLayoutMSdP=1,
        AtomLayoutNdKV=of.key_groups, AtomLayoutMdQ=of.query_groups, num_threads=THREADS + 128, dQ_single_wg=of.one_group)
    q, k, v, dout = whole(q, k, v, dout)
    dk, dv = sums(dk, dv) if grouped else whole(dk, dv)
    stats2, products, dq_sum = sums(stats2, products, dq_sum)
    left, right = (window, cutlass.Int32(0)) if MASK == fa4.LOCAL else (None, None)
    return kernel, (q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, *[None] * 4, left, right, *[None] * 3,
                    AuxData(None, None), None, None)


def finish(dq_sum, dq, scale, *, target, HEAD, HEADV, MASK):
    of = blocks(HEAD, MASK)
    kernel = FlashAttentionBackwardPostprocess(dq.dtype, HEAD, 90, of.queries, THREADS // 2 if of.one_group else THREADS, of.query_groups,
                                               of.queries_turned, hdim_multiple_of=of.columns)
    return kernel, (*sums(dq_sum), *whole(dq), scale, None, None, None, None)


def finish_keys(dk_sum, dk, dv_sum, dv, scale, *, target, HEAD, HEADV, MASK):
    of = blocks(HEAD, MASK)
    kernel = FinishKeys(lambda: FlashAttentionBackwardPostprocess(dk.dtype, HEAD, 90, of.keys, THREADS, of.key_groups, of.keys_turned,
                                                                  hdim_multiple_of=of.columns))
    return kernel, (*sums(dk_sum), *whole(dk), *sums(dv_sum), *whole(dv), scale)
