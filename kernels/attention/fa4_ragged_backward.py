"""FlashAttention-4's backward for Hopper on sequences that lie one after another (fa4_backward.py, fa4_sequences.py), in one function: where
they lie, sums of o * dout, the gradients, their roundings, and the rows that no sequence has. Sums in float lie by sequence in whole blocks.
"""
import math

import cutlass
import fa4
import fa4_backward
from cutlass import Int32, cute
from fa4 import AuxData
from fa4_backward import THREADS, FlashAttentionBackwardPostprocess, FlashAttentionBackwardPreprocess
from fa4_sequences import Blocks, Sequences, in_words, placed
from flash_attn.cute.named_barrier import NamedBarrierBwd
from quack import copy_utils, layout_utils


class RaggedGradients(fa4_backward.GroupedGradients):
    def load(self, *arguments):
        super().load(*placed(arguments))

    def mma(self, *arguments, **how):
        arguments = placed(arguments)
        self.scale = arguments[[isinstance(one, Blocks) for one in arguments].index(True) - 1]
        super().mma(*arguments, **how)

    def dQaccum_store(self, *arguments):
        super().dQaccum_store(*placed(arguments))


class OwnKeys(RaggedGradients):
    """Where each query head has keys of its own, a block's sums are dk and dv. The bulk copy that would store them wants a tensor map whose
    address lies outside of the tensor, as in fa4_ragged.py: threads store, and no row past a sequence."""

    def _check_type(self, *types):
        pass  # of dk and dv: that of keys, not float

    @cute.jit
    def epilogue_dKV(self, sum_dv, dv, v_place, sum_dk, dk, k_place, lengths, map_dk, map_dv, products_dk, products_dv, thread, block,
                     head, sequence, *rest):
        sum_dk.store(sum_dk.load() * self.scale)
        meet = cutlass.pipeline.NamedBarrier(barrier_id=int(NamedBarrierBwd.Epilogue), num_threads=self.num_mma_threads)
        meet.arrive_and_wait()  # all products are done, whose operands lie there
        for sums, place, products in ((sum_dv, v_place, products_dv), (sum_dk, k_place, products_dk)):
            to = layout_utils.transpose_view(place) if cutlass.const_expr(self.dKV_swapAB) else place
            store, _, _ = copy_utils.get_smem_store_C(products, to, thread, transpose=self.dKV_swapAB, position_independent=True)
            store(sums, dst_idx=None)
        meet.arrive_and_wait()
        for place, gradient in ((v_place, dv), (k_place, dk)):
            self.store_rows(place, layout_utils.select(gradient, [2, 0, 1]), lengths, thread, block, head)

    @cute.jit
    def store_rows(self, place: cute.Tensor, gradient: cute.Tensor, lengths, thread: Int32, block: Int32, head: Int32):
        """gradient: [rows, columns, heads]."""
        columns = self.tile_hdim
        copy = copy_utils.tiled_copy_2d(self.dtype, math.gcd(128, columns) // 8, self.num_mma_threads, 8)
        of_thread, tile = copy.get_slice(thread), (self.tile_n, columns)
        rows = cute.domain_offset((lengths.offset_k, 0), gradient[None, None, head])
        there, here = of_thread.partition_D(cute.local_tile(rows, tile, (block, 0))), of_thread.partition_S(place)
        held, at = cute.make_fragment_like(here), of_thread.partition_S(cute.make_identity_tensor(tile))
        cute.autovec_copy(here, held)
        for i in cutlass.range(cute.size(held.shape[1]), unroll_full=True):
            if at[0, i, 0][0] < lengths.seqlen_k - block * self.tile_n:
                cute.copy(copy, held[None, i, None], there[None, i, None])


class Gradients:
    def __init__(self, prepare, gradients, finish, finish_keys, mask):
        self.prepare, self.gradients, self.finish, self.finish_keys = prepare, gradients, finish, finish_keys
        self.sequences, self.mask = Sequences(mask), mask

    def ends(self, window):
        """As of fa4_ragged.Attention."""
        return (window, Int32(0)) if self.mask == fa4.LOCAL else (None, None)

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, dout: cute.Tensor, stats: cute.Tensor,
                 q_offsets: cute.Tensor, kv_offsets: cute.Tensor, dq: cute.Tensor, dk: cute.Tensor, dv: cute.Tensor, q_rows: cute.Tensor,
                 kv_rows: cute.Tensor, lengths: cute.Tensor, kv_lengths: cute.Tensor, products: cute.Tensor, stats2: cute.Tensor,
                 dq_sum: cute.Tensor, dk_sum: cute.Tensor, dv_sum: cute.Tensor, scale: cutlass.Float32, window: Int32, q_bound: Int32,
                 kv_bound: Int32, from_first: Int32, stream):
        totals, one = (q.shape[0], k.shape[0], q_bound, kv_bound), cutlass.Float32(1.0)
        self.sequences.place(q_offsets, kv_offsets, q_rows, kv_rows, lengths, kv_lengths, *totals, from_first).launch(
            grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)
        self.prepare(o, dout, products, stats, stats2, dq_sum, q_rows, lengths, None, None, None, one, None, None, stream=stream)
        summed = (dk, dv) if cutlass.const_expr(self.finish_keys is None) else (dk_sum, dv_sum)
        self.gradients(q, k, v, dout, stats2, products, dq_sum, *summed, scale, q_rows, kv_rows, lengths, kv_lengths, *self.ends(window), None, None,
                       None, AuxData(None, None), None, None, stream=stream)
        self.finish(dq_sum, dq, scale, q_rows, lengths, None, None, stream=stream)
        if cutlass.const_expr(self.finish_keys is not None):
            round_dk, round_dv = self.finish_keys
            round_dk(dk_sum, dk, scale, kv_rows, kv_lengths, None, None, stream=stream)
            round_dv(dv_sum, dv, one, kv_rows, kv_lengths, None, None, stream=stream)
        rows, columns = cutlass.max(q.shape[0], k.shape[0]), self.gradients.tile_hdim
        self.sequences.clear_gradients(*[in_words(one, columns) for one in (dq, dk, dv)], q_offsets, kv_offsets, *totals).launch(
            grid=[cute.ceil_div(rows, THREADS // 32), 1, 1], block=[THREADS, 1, 1], stream=stream)


def gradients(q, k, v, o, dout, stats, q_offsets, kv_offsets, dq, dk, dv, q_rows, kv_rows, lengths, kv_lengths, products, stats2, dq_sum,
              dk_sum, dv_sum, scale, window, q_bound, kv_bound, from_first, *, target, HEAD, MASK, GROUPED):
    of = fa4_backward.blocks(HEAD, fa4_backward.queries_of(HEAD, MASK))
    prepare = FlashAttentionBackwardPreprocess(q.dtype, HEAD, HEAD, of.queries, hdim_multiple_of=of.columns)
    kernel = (RaggedGradients if GROUPED else OwnKeys)(
        q.dtype, HEAD, HEAD, 2, MASK == fa4.CAUSAL, is_local=MASK == fa4.LOCAL, deterministic=False, tile_m=of.queries,
        tile_n=of.keys, Q_stage=of.stages[0], dO_stage=of.stages[1], PdS_stage=of.stages[2], SdP_swapAB=of.scores_turned,
        dKV_swapAB=of.keys_turned, dQ_swapAB=of.queries_turned, AtomLayoutMSdP=1, AtomLayoutNdKV=of.key_groups,
        AtomLayoutMdQ=of.query_groups, num_threads=THREADS + 128, dQ_single_wg=of.one_group)
    finish = FlashAttentionBackwardPostprocess(q.dtype, HEAD, 90, of.queries, THREADS // 2 if of.one_group else THREADS, of.query_groups,
                                               of.queries_turned, hdim_multiple_of=of.columns)
    finish_keys = [FlashAttentionBackwardPostprocess(q.dtype, HEAD, 90, of.keys, THREADS, of.key_groups, of.keys_turned,
                                                     hdim_multiple_of=of.columns) for _ in range(2)] if GROUPED else None
    dense = [one.like(align=16, divisible=8, dynamic=[2]) for one in (q, k, v, o, dout)]
    made = [one.like(align=16, divisible=8, dynamic=[2]) for one in (dq, dk, dv)]
    sums = *fa4_backward.sums(products, stats2, dq_sum), *[one.like(align=16, divisible=4, dynamic=[0]) for one in (dk_sum, dv_sum)]
    return Gradients(prepare, kernel, finish, finish_keys, MASK), (
        *dense, stats, q_offsets, kv_offsets, *made, q_rows, kv_rows, lengths, kv_lengths, *sums, scale, window, q_bound, kv_bound, from_first)
