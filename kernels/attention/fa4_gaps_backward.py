"""FlashAttention-4's backward for Hopper on sequences that have rows of none between them (fa4_gaps.py, fa4_ragged_backward.py). Each of the
four that products read is copied, with zeros in those rows. Sums of dk and dv are in float, whether query heads share a key head or not.
"""
import cutlass
import fa4
import fa4_ragged_backward
from cutlass import Int32, cute
from fa4 import AuxData
from fa4_gaps import Gaps, each_row
from fa4_sequences import THREADS, in_words


class Gradients(fa4_ragged_backward.Gradients):
    def __init__(self, prepare, gradients, finish, finish_keys, mask):
        super().__init__(prepare, gradients, finish, finish_keys, mask)
        self.sequences = Gaps(mask)

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, dout: cute.Tensor, stats: cute.Tensor,
                 q_offsets: cute.Tensor, kv_offsets: cute.Tensor, q_lengths: cute.Tensor, kv_lengths: cute.Tensor, dq: cute.Tensor,
                 dk: cute.Tensor, dv: cute.Tensor, q_rows: cute.Tensor, kv_rows: cute.Tensor, queries_of: cute.Tensor, keys_of: cute.Tensor,
                 whole_q: cute.Tensor, whole_k: cute.Tensor, whole_v: cute.Tensor, whole_dout: cute.Tensor, products: cute.Tensor,
                 stats2: cute.Tensor, dq_sum: cute.Tensor, dk_sum: cute.Tensor, dv_sum: cute.Tensor, scale: cutlass.Float32, window: Int32,
                 q_bound: Int32, kv_bound: Int32, from_first: Int32, stream):
        rows, keys, columns, one = q.shape[0], k.shape[0], self.gradients.tile_hdim, cutlass.Float32(1.0)
        self.sequences.place(q_offsets, kv_offsets, q_lengths, kv_lengths, q_rows, kv_rows, queries_of, keys_of, rows, keys, q_bound, kv_bound,
                             from_first).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)
        for whole, given in ((whole_q, q), (whole_dout, dout)):
            self.sequences.copy_whole(in_words(whole, columns), in_words(given, columns), q_offsets, q_lengths, rows, q_bound).launch(
                **each_row(rows, stream))
        for whole, given in ((whole_k, k), (whole_v, v)):
            self.sequences.copy_whole(in_words(whole, columns), in_words(given, columns), kv_offsets, kv_lengths, keys, kv_bound).launch(
                **each_row(keys, stream))
        self.prepare(o, dout, products, stats, stats2, dq_sum, q_rows, queries_of, None, None, None, one, None, None, stream=stream)
        self.gradients(whole_q, whole_k, whole_v, whole_dout, stats2, products, dq_sum, dk_sum, dv_sum, scale, q_rows, kv_rows, queries_of,
                       keys_of, *self.ends(window), None, None, None, AuxData(None, None), None, None, stream=stream)
        self.finish(dq_sum, dq, scale, q_rows, queries_of, None, None, stream=stream)
        round_dk, round_dv = self.finish_keys
        round_dk(dk_sum, dk, scale, kv_rows, keys_of, None, None, stream=stream)
        round_dv(dv_sum, dv, one, kv_rows, keys_of, None, None, stream=stream)
        self.sequences.clear_gradients(*[in_words(of, columns) for of in (dq, dk, dv)], q_offsets, kv_offsets, q_lengths, kv_lengths, rows, keys,
                                       q_bound, kv_bound).launch(**each_row(cutlass.max(rows, keys), stream))


def gradients(q, k, v, o, dout, stats, q_offsets, kv_offsets, q_lengths, kv_lengths, dq, dk, dv, q_rows, kv_rows, queries_of, keys_of, whole_q,
              whole_k, whole_v, whole_dout, *rest, target, HEAD, MASK):
    kernel, given = fa4_ragged_backward.gradients(q, k, v, o, dout, stats, q_offsets, kv_offsets, dq, dk, dv, q_rows, kv_rows, queries_of, keys_of,
                                                  *rest, target=target, HEAD=HEAD, MASK=MASK, GROUPED=1)
    whole = [one.like(align=16, divisible=8, dynamic=[2]) for one in (whole_q, whole_k, whole_v, whole_dout)]
    return (Gradients(kernel.prepare, kernel.gradients, kernel.finish, kernel.finish_keys, MASK),
            (*given[:8], q_lengths, kv_lengths, *given[8:15], *whole, *given[15:]))
