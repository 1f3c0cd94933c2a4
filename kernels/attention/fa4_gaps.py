"""FlashAttention-4's forward for Hopper on sequences that have rows of none between them (fa4_ragged.py): each has a length besides its offset.

A block of keys reaches past the end of its sequence. What its products find there they multiply by 0, which for NaN and infinities is NaN:
values are copied, with zeros in the rows that no sequence has, and it is the copy that products read.
"""
import cutlass
import fa4
import fa4_ragged
from cutlass import Int32, const_expr, cute
from fa4 import AuxData
from fa4_sequences import THREADS, Sequences, clamped, clear_row, in_words, owner_of, rows_of


@cute.jit
def length_of(lengths: cute.Tensor, sequence: Int32, most: Int32):
    return cutlass.max(Int32(0), cutlass.min(lengths[sequence], most))


class Gaps(Sequences):
    """The kernels around FlashAttention-4's, of sequences with lengths. A warp takes a row."""

    @cute.kernel
    def place(self, q_offsets: cute.Tensor, kv_offsets: cute.Tensor, q_lengths: cute.Tensor, kv_lengths: cute.Tensor, q_rows: cute.Tensor,
              kv_rows: cute.Tensor, queries_of: cute.Tensor, keys_of: cute.Tensor, q_total: Int32, kv_total: Int32, q_bound: Int32,
              kv_bound: Int32, from_first: Int32):
        b, _, _ = cute.arch.thread_idx()
        count = cute.size(q_offsets) - 1
        while b <= count:
            q_rows[b] = clamped(q_offsets[b], q_total)
            kv_rows[b] = clamped(kv_offsets[b], kv_total)
            if b < count:
                _, queries = rows_of(q_offsets, b, q_total, q_bound)
                _, keys = rows_of(kv_offsets, b, kv_total, kv_bound)
                queries, keys = length_of(q_lengths, b, queries), length_of(kv_lengths, b, keys)
                queries_of[b], keys_of[b] = queries, keys
                queries_of[count + b] = keys if from_first != 0 else queries
            b += THREADS

    @cute.kernel
    def copy_whole(self, to: cute.Tensor, given: cute.Tensor, offsets: cute.Tensor, lengths: cute.Tensor, total: Int32, bound: Int32):
        """to[rows, words] is what is given, and 0 where no sequence is."""
        row, lane = row_and_lane()
        if row < total:
            if is_of_none(offsets, lengths, row, total, bound):
                clear_row(to, row, lane)
            else:
                i = lane
                while i < cute.size(given, mode=[1]):
                    to[row, i] = given[row, i]
                    i += 32

    @cute.kernel
    def clear_out(self, o: cute.Tensor, stats: cute.Tensor, q_offsets: cute.Tensor, q_lengths: cute.Tensor, keys_of: cute.Tensor,
                  q_total: Int32, q_bound: Int32, window: Int32, from_first: Int32):
        """As of sequences without lengths."""
        row, lane = row_and_lane()
        if row < q_total:
            sequence, number, most = owner_of(q_offsets, row, q_total, q_bound)
            queries, keys = length_of(q_lengths, sequence, most), keys_of[sequence]
            diagonal = number if from_first != 0 else number + keys - queries
            last, first = keys - 1, Int32(0)
            if const_expr(self.mask != fa4.NO_MASK):
                last = cutlass.min(diagonal, last)
            if const_expr(self.mask == fa4.LOCAL):
                first = cutlass.max(diagonal - window, first)
            if number >= queries or first > last:
                clear_row(o, row, lane)
                head = lane
                while head < cute.size(stats, mode=[0]) and row < cute.size(stats, mode=[1]):
                    stats[head, row] = -cutlass.Float32.inf
                    head += 32

    @cute.kernel
    def clear_gradients(self, dq: cute.Tensor, dk: cute.Tensor, dv: cute.Tensor, q_offsets: cute.Tensor, kv_offsets: cute.Tensor,
                        q_lengths: cute.Tensor, kv_lengths: cute.Tensor, q_total: Int32, kv_total: Int32, q_bound: Int32, kv_bound: Int32):
        row, lane = row_and_lane()
        if row < q_total:
            if is_of_none(q_offsets, q_lengths, row, q_total, q_bound):
                clear_row(dq, row, lane)
        if row < kv_total:
            if is_of_none(kv_offsets, kv_lengths, row, kv_total, kv_bound):
                clear_row(dk, row, lane)
                clear_row(dv, row, lane)


@cute.jit
def row_and_lane():
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    return block * (THREADS // 32) + thread // 32, thread % 32


@cute.jit
def is_of_none(offsets: cute.Tensor, lengths: cute.Tensor, row: Int32, total: Int32, bound: Int32):
    sequence, number, most = owner_of(offsets, row, total, bound)
    return number >= length_of(lengths, sequence, most)


def each_row(rows, stream):
    return {"grid": [cute.ceil_div(rows, THREADS // 32), 1, 1], "block": [THREADS, 1, 1], "stream": stream}


class Attention(fa4_ragged.Attention):
    def __init__(self, attention, mask):
        super().__init__(attention, mask)
        self.sequences = Gaps(mask)

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, stats: cute.Tensor, q_offsets: cute.Tensor,
                 kv_offsets: cute.Tensor, q_lengths: cute.Tensor, kv_lengths: cute.Tensor, q_rows: cute.Tensor, kv_rows: cute.Tensor,
                 queries_of: cute.Tensor, keys_of: cute.Tensor, whole_v: cute.Tensor, scale: cutlass.Float32, window: Int32, q_bound: Int32,
                 kv_bound: Int32, from_first: Int32, stream):
        rows, keys, columns = q.shape[0], k.shape[0], self.attention.tile_hdimv
        self.sequences.place(q_offsets, kv_offsets, q_lengths, kv_lengths, q_rows, kv_rows, queries_of, keys_of, rows, keys, q_bound, kv_bound,
                             from_first).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)
        self.sequences.copy_whole(in_words(whole_v, columns), in_words(v, columns), kv_offsets, kv_lengths, keys, kv_bound).launch(
            **each_row(keys, stream))
        self.attention(q, k, whole_v, o, stats, scale, q_rows, kv_rows, queries_of, keys_of, None, *self.ends(window), None, None,
                       AuxData(None, None), None, None, stream=stream)
        self.sequences.clear_out(in_words(o, columns), stats, q_offsets, q_lengths, keys_of, rows, q_bound, window, from_first).launch(
            **each_row(rows, stream))


def forward(q, k, v, o, stats, q_offsets, kv_offsets, q_lengths, kv_lengths, q_rows, kv_rows, queries_of, keys_of, whole_v, *numbers, target, HEAD,
            MASK, BLOCK):
    given = fa4_ragged.forward(q, k, v, o, stats, q_offsets, kv_offsets, q_rows, kv_rows, queries_of, keys_of, *numbers, target=target, HEAD=HEAD,
                               MASK=MASK, BLOCK=BLOCK)
    kernel, (q, k, v, o, *_) = given
    whole_v = whole_v.like(align=16, divisible=8, dynamic=[2])
    return Attention(kernel.attention, MASK), (q, k, v, o, stats, q_offsets, kv_offsets, q_lengths, kv_lengths, q_rows, kv_rows, queries_of, keys_of,
                                               whole_v, *numbers)
