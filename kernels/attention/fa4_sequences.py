"""Where ragged sequences lie, for FlashAttention-4's kernels, which believe what offsets and lengths say; what these kernels leave undefined;
and masks whose diagonal begins where the first query and the first key of a sequence meet: FlashAttention-4's ends at the last ones.

Of sequence b, `lengths` has how many queries it has and, B entries on, where its diagonal ends: that many queries from its first.
"""
import dataclasses
import functools

import cutlass
import fa4  # first: it stands in for torch
from cutlass import Int32, const_expr, cute
from flash_attn.cute.block_info import BlockInfo
from flash_attn.cute.mask import AttentionMask
from flash_attn.cute.seqlen_info import SeqlenInfoQK

THREADS = 256


@cute.jit
def clamped(offset: Int32, total: Int32):
    return cutlass.max(Int32(0), cutlass.min(offset, total))


@cute.jit
def rows_of(offsets: cute.Tensor, sequence: Int32, total: Int32, bound: Int32):
    """(first row, how many): inside a tensor of `total` rows, no more than `bound`."""
    first = clamped(offsets[sequence], total)
    end = cutlass.max(first, clamped(offsets[sequence + 1], total))
    return first, cutlass.min(end - first, bound)


@cute.jit
def owner_of(offsets: cute.Tensor, row: Int32, total: Int32, bound: Int32):
    """(sequence, the row's number in it, its length): number < length where some sequence has the row, else not."""
    before, after = Int32(-1), cute.size(offsets) - 1  # offsets[before] <= row < offsets[after]
    while after - before > 1:
        middle = (before + after) // 2
        if offsets[middle] <= row:
            before = middle
        else:
            after = middle
    sequence, number, length = cutlass.max(before, Int32(0)), Int32(0), Int32(0)
    if before >= 0:
        first, length = rows_of(offsets, before, total, bound)
        number = row - first
    return sequence, number, length


class Sequences:
    """Two small kernels: `place` before FlashAttention-4's, `clear` after them."""

    def __init__(self, mask):
        self.mask = mask

    @cute.kernel
    def place(self, q_offsets: cute.Tensor, kv_offsets: cute.Tensor, q_rows: cute.Tensor, kv_rows: cute.Tensor, lengths: cute.Tensor,
              kv_lengths: cute.Tensor, q_total: Int32, kv_total: Int32, q_bound: Int32, kv_bound: Int32, from_first: Int32):
        b, _, _ = cute.arch.thread_idx()
        count = cute.size(q_offsets) - 1
        while b <= count:
            q_rows[b] = clamped(q_offsets[b], q_total)
            kv_rows[b] = clamped(kv_offsets[b], kv_total)
            if b < count:
                _, queries = rows_of(q_offsets, b, q_total, q_bound)
                _, keys = rows_of(kv_offsets, b, kv_total, kv_bound)
                lengths[b], kv_lengths[b] = queries, keys
                lengths[count + b] = keys if from_first != 0 else queries
            b += THREADS

    @cute.kernel
    def clear_out(self, o: cute.Tensor, stats: cute.Tensor, q_offsets: cute.Tensor, kv_offsets: cute.Tensor, q_total: Int32,
                  kv_total: Int32, q_bound: Int32, kv_bound: Int32, window: Int32, from_first: Int32):
        """o[rows, words] is 0 and stats[heads, rows] -inf in rows that no sequence has, or that see no key. A warp takes a row."""
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        row, lane = block * (THREADS // 32) + thread // 32, thread % 32
        if row < q_total:
            sequence, number, queries = owner_of(q_offsets, row, q_total, q_bound)
            _, keys = rows_of(kv_offsets, sequence, kv_total, kv_bound)
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
                        q_total: Int32, kv_total: Int32, q_bound: Int32, kv_bound: Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        row, lane = block * (THREADS // 32) + thread // 32, thread % 32
        if row < q_total:
            _, number, queries = owner_of(q_offsets, row, q_total, q_bound)
            if number >= queries:
                clear_row(dq, row, lane)
        if row < kv_total:
            _, number, keys = owner_of(kv_offsets, row, kv_total, kv_bound)
            if number >= keys:
                clear_row(dk, row, lane)
                clear_row(dv, row, lane)


@cute.jit
def clear_row(words: cute.Tensor, row: Int32, lane: Int32):
    i = lane
    while i < cute.size(words, mode=[1]):
        words[row, i] = Int32(0)
        i += 32


def in_words(tensor, columns):
    """A dense tensor[rows, heads, columns] of 16 bits as [rows, words]."""
    words = tensor.shape[1] * (columns // 2)
    return cute.make_tensor(cute.recast_ptr(tensor.iterator, dtype=Int32), cute.make_layout((tensor.shape[0], words), stride=(words, 1)))


@dataclasses.dataclass(frozen=True)
class Placed(SeqlenInfoQK):
    diagonal: Int32 = None

    def turned(self):
        """As masks are to see it."""
        return dataclasses.replace(self, seqlen_q=self.diagonal)


@dataclasses.dataclass(frozen=True)
class Blocks(BlockInfo):
    """Which blocks see each other, by the diagonal."""

    def get_n_block_min_max(self, lengths, *rest):
        return super().get_n_block_min_max(lengths.turned(), *rest)

    def get_n_block_min_causal_local_mask(self, lengths, *rest):
        return super().get_n_block_min_causal_local_mask(lengths.turned(), *rest)

    def get_n_block_min_before_local_mask(self, lengths, *rest):
        return super().get_n_block_min_before_local_mask(lengths.turned(), *rest)

    def get_m_block_min_max(self, lengths, n_block):
        """Its last block of queries is that of `seqlen_q`, which here is none of the diagonal's."""
        first, _ = super().get_m_block_min_max(lengths.turned(), n_block)
        last = cute.ceil_div(lengths.seqlen_q, self.tile_m)
        if self.is_local:
            seen = (n_block + 1) * self.tile_n + lengths.diagonal - lengths.seqlen_k + self.window_size_left
            last = cutlass.min(last, cute.ceil_div(seen, self.tile_m))
        return first, last


def fields_of(one):
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}


def lengths_of(create, sequence):
    diagonals, sequences = create.keywords["mSeqUsedQ"], cute.size(create.keywords["mCuSeqlensQ"]) - 1
    return Placed(**fields_of(create(sequence)), diagonal=diagonals[sequences + sequence])


def mask_of(create, lengths):
    return create(lengths.turned())


def placed(arguments):
    """The arguments of a method of FlashAttention-4's kernels, of which three are made to know the diagonal."""
    def change(one):
        if isinstance(one, BlockInfo):
            return Blocks(**fields_of(one))
        if isinstance(one, functools.partial) and one.func == SeqlenInfoQK.create:
            return functools.partial(lengths_of, one)
        if isinstance(one, functools.partial) and one.func is AttentionMask:
            return functools.partial(mask_of, one)
        return one
    return [change(one) for one in arguments]
