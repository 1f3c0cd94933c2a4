"""FlashAttention-4's backward for Hopper in kernels with sums in float between them: sums of o * dout (and a cleared dq), then dk, dv and
that dq, then its rounding. Where query heads share a key head, each has dk and dv of its own, which a last kernel adds up.
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
from flash_attn.cute.tile_scheduler import SingleTileScheduler

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


def queries_of(head, mask):
    """A block's."""
    if head == 64:
        return 128
    return 80 if head == 128 and mask == fa4.NO_MASK else 64


def blocks(head, queries):
    if head == 64:
        return Blocks(queries, query_groups=2)
    if head == 96:
        return Blocks(queries, one_group=True)
    if head == 128:
        return Blocks(queries, queries_turned=queries == 80)
    if head == 192:
        return Blocks(queries, 96, (2, 2, 1), scores_turned=False, keys_turned=True)
    return Blocks(queries, 48, (2, 1, 1), scores_turned=False, keys_turned=True, key_groups=1)


AT_ONCE = 132  # tiles: multiprocessors
LAST = 2 * AT_ONCE  # tiles whose order counts


def most_queries_first(place, grid):
    """Which (block of keys, head, batch) a block of a causal mask takes, of which the first are seen by most queries. The last heads, of LAST
    tiles or a few more, are in that order, so that the longest are done when the shortest are; the others one by one, to read queries once.

        >>> [most_queries_first((0, head, 0), (200, 4, 1)) for head in range(4)]
        [(0, 0, 0), (0, 1, 0), (0, 2, 0), (100, 2, 0)]
    """
    (block, head, batch), (blocks, heads, batches) = place, grid
    number = block + blocks * (head + heads * batch)
    front = heads * batches - (LAST + blocks - 1) // blocks
    front = (front > 0) * front
    last, inside = heads * batches - front, number - front * blocks
    ordered = inside >= 0
    head = ordered * (front + inside % last) + (1 - ordered) * (head + heads * batch)
    return ordered * (inside // last) + (1 - ordered) * block, head % heads, head // heads


class MostQueriesFirst(SingleTileScheduler):
    """Of causal masks."""

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        return MostQueriesFirst(params, MostQueriesFirst.place(), loc=loc, ip=ip)

    @staticmethod
    @cute.jit
    def place():
        block, head, batch = cute.arch.block_idx()
        blocks, heads, batches = cute.arch.grid_dim()
        if blocks * heads * batches > AT_ONCE:
            block, head, batch = most_queries_first((block, head, batch), (blocks, heads, batches))
        return block, head, batch

    def __new_from_mlir_values__(self, values):
        made = super().__new_from_mlir_values__(values)
        made.__class__ = MostQueriesFirst
        return made


class Gradients(FlashAttentionBackwardSm90):
    """Each block divides out which key head its query head has, and stores dk and dv of its own: FlashAttention-4 compiles a kernel for each
    number of heads that share one, and adds up in float, in memory that has to be cleared."""

    def kernel(self, *given):
        tiles = MostQueriesFirst if self.is_causal else SingleTileScheduler
        return super().kernel(*[tiles if one is SingleTileScheduler else one for one in given])

    def load(self, q, k, *rest):
        *given, _ = rest
        self.qhead_per_kvhead = 2  # to `load` alone: it divides
        super().load(q, k, *given, cute.size(q, mode=[2]) // cute.size(k, mode=[2]))
        self.qhead_per_kvhead = 1


class SumHeads:
    """dk and dv of a key head: sums, in float, of those of the query heads that share it. A thread has 8 columns of a row."""
    ROWS = 16  # of a block

    def __init__(self, head, head_v):
        self.columns = head, head_v

    @cute.jit
    def __call__(self, dk_parts: cute.Tensor, dk: cute.Tensor, dv_parts: cute.Tensor, dv: cute.Tensor, stream):
        rows = cute.size(dk, mode=[0]) * cute.size(dk, mode=[1]) * cute.size(dk, mode=[2])
        threads = self.ROWS * max(self.columns) // 8
        self.add(dk_parts, dk, dv_parts, dv).launch(grid=[cute.ceil_div(rows, self.ROWS), 2, 1], block=[threads, 1, 1], stream=stream)

    @cute.kernel
    def add(self, dk_parts: cute.Tensor, dk: cute.Tensor, dv_parts: cute.Tensor, dv: cute.Tensor):
        _, which, _ = cute.arch.block_idx()
        if which == 0:
            self.add_rows(dk_parts, dk, self.columns[0])
        else:
            self.add_rows(dv_parts, dv, self.columns[1])

    @cute.jit
    def add_rows(self, parts: cute.Tensor, sums: cute.Tensor, columns: cutlass.Constexpr):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        lanes = columns // 8
        batches, keys, heads = (cute.size(sums, mode=[i]) for i in range(3))
        row, lane = block * self.ROWS + thread // lanes, thread % lanes
        if thread < self.ROWS * lanes and row < batches * keys * heads:
            head, key, batch = row % heads, row // heads % keys, row // heads // keys
            group = cute.size(parts, mode=[2]) // heads
            total = cute.make_rmem_tensor(8, cutlass.Float32)
            total.fill(0.0)
            for i in cutlass.range(group, unroll=4):
                part = cute.local_tile(parts[batch, key, head * group + i, None], (8,), (lane,))
                held = cute.make_rmem_tensor(8, parts.element_type)
                cute.autovec_copy(part, held)
                total.store(total.load() + held.load().to(cutlass.Float32))
            made = cute.make_rmem_tensor(8, sums.element_type)
            made.store(total.load().to(sums.element_type))
            cute.autovec_copy(made, cute.local_tile(sums[batch, key, head, None], (8,), (lane,)))


class GroupedGradients(FlashAttentionBackwardSm90):
    """Blocks add to sums of dk and dv in float (as of ragged sequences, and with a modifier); how many query heads share a key head is divided
    out when it is launched."""

    def kernel(self, q, k, *rest):
        group = FastDivmodDivisorV2(cute.size(q, mode=[2]) // cute.size(k, mode=[2]))
        return super().kernel(q, k, *[group if isinstance(one, FastDivmodDivisorV2) else one for one in rest])


def whole(*tensors):
    return [one.like(align=16, divisible=8, dynamic=[3]) for one in tensors]


def sums(*tensors):
    return [one.like(align=16, divisible=4) for one in tensors]


def prepare(o, dout, products, stats, stats2, dq_sum, *, target, HEAD, HEADV, TILE):
    kernel = FlashAttentionBackwardPreprocess(o.dtype, HEAD, HEADV, TILE, hdim_multiple_of=blocks(HEAD, TILE).columns)
    o, dout = whole(o, dout)
    products, stats2, dq_sum = sums(products, stats2, dq_sum)
    return kernel, (o, dout, products, stats, stats2, dq_sum, None, None, None, None, None, cutlass.Float32(1.0), None, None)


def gradients(q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, window, *, target, HEAD, HEADV, MASK):
    of = blocks(HEAD, queries_of(HEAD, MASK))
    kernel = Gradients(
        q.dtype, HEAD, HEADV, 1, MASK == fa4.CAUSAL, is_local=MASK == fa4.LOCAL, deterministic=False,
        tile_m=of.queries, tile_n=of.keys, Q_stage=of.stages[0], dO_stage=of.stages[1], PdS_stage=of.stages[2],
        SdP_swapAB=of.scores_turned, dKV_swapAB=of.keys_turned, dQ_swapAB=of.queries_turned, AtomLayoutMSdP=1,
        AtomLayoutNdKV=of.key_groups, AtomLayoutMdQ=of.query_groups, num_threads=THREADS + 128, dQ_single_wg=of.one_group)
    q, k, v, dout, dk, dv = whole(q, k, v, dout, dk, dv)
    stats2, products, dq_sum = sums(stats2, products, dq_sum)
    left, right = (window, cutlass.Int32(0)) if MASK == fa4.LOCAL else (None, None)
    return kernel, (q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, *[None] * 4, left, right, *[None] * 3,
                    AuxData(None, None), None, None)


def finish(dq_sum, dq, scale, *, target, HEAD, HEADV, TILE):
    of = blocks(HEAD, TILE)
    kernel = FlashAttentionBackwardPostprocess(dq.dtype, HEAD, 90, TILE, THREADS // 2 if of.one_group else THREADS, of.query_groups,
                                               of.queries_turned, hdim_multiple_of=of.columns)
    return kernel, (*sums(dq_sum), *whole(dq), scale, None, None, None, None)


def sum_heads(dk_parts, dk, dv_parts, dv, *, target, HEAD, HEADV):
    return SumHeads(HEAD, HEADV), whole(dk_parts, dk, dv_parts, dv)
