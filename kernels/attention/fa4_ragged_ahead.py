"""FlashAttention-4 on sequences that lie one after another (fa4_ragged.py, fa4_ragged_backward.py) within windows whose right end is a number
that a launch gives, too.
"""
import cutlass
import fa4
import fa4_ragged
import fa4_ragged_backward
from cutlass import Int32, cute
from fa4_sequences import THREADS, Sequences, clear_row, owner_of, rows_of


@cute.jit
def clear_unseen(o: cute.Tensor, stats: cute.Tensor, row: Int32, lane: Int32, number: Int32, queries: Int32, keys: Int32, left: Int32,
                 right: Int32, from_first: Int32):
    """Of the row that is query `number` of a sequence, and sees the keys from `left` before its diagonal to `right` behind it."""
    diagonal = number if from_first != 0 else number + keys - queries
    first, last = cutlass.max(diagonal - left, Int32(0)), cutlass.min(diagonal + right, keys - 1)
    if number >= queries or first > last:
        clear_row(o, row, lane)
        head = lane
        while head < cute.size(stats, mode=[0]) and row < cute.size(stats, mode=[1]):
            stats[head, row] = -cutlass.Float32.inf
            head += 32


class Ends:
    """Of the small kernels around FlashAttention-4's: those behind it are told both ends."""
    right = None  # of the diagonal: a number of the launch

    def clear_out(self, *arguments):
        *given, left, from_first = arguments
        return self.clear_between(*given, left, self.right, from_first)


class Between(Ends, Sequences):
    @cute.kernel
    def clear_between(self, o: cute.Tensor, stats: cute.Tensor, q_offsets: cute.Tensor, kv_offsets: cute.Tensor, q_total: Int32,
                      kv_total: Int32, q_bound: Int32, kv_bound: Int32, left: Int32, right: Int32, from_first: Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        row, lane = block * (THREADS // 32) + thread // 32, thread % 32
        if row < q_total:
            sequence, number, queries = owner_of(q_offsets, row, q_total, q_bound)
            _, keys = rows_of(kv_offsets, sequence, kv_total, kv_bound)
            clear_unseen(o, stats, row, lane, number, queries, keys, left, right, from_first)


class Ahead:
    """Of the functions for windows that end at the diagonal, which take all but the right end."""
    right = None

    def ends(self, window):
        return window, self.right

    @cute.jit
    def __call__(self, given: tuple, left: Int32, right: Int32, bounds: tuple, stream):
        self.right = self.sequences.right = right
        self.behind(*given, left, *bounds, stream)


class Attention(Ahead, fa4_ragged.Attention):
    behind = fa4_ragged.Attention.__call__

    def __init__(self, attention):
        super().__init__(attention, fa4.LOCAL)
        self.sequences = Between(fa4.LOCAL)


class OfGradients(Ahead):
    @classmethod
    def like(cls, made):
        return cls(made.prepare, made.gradients, made.finish, made.finish_keys, fa4.LOCAL)


class Gradients(OfGradients, fa4_ragged_backward.Gradients):
    behind = fa4_ragged_backward.Gradients.__call__


def launched(function, kernel_of, arguments, tunables):
    """kernel_of what `function` makes for windows that end at the diagonal, and its operands with both ends among the numbers."""
    *given, left, right, q_bound, kv_bound, from_first = arguments
    bounds = q_bound, kv_bound, from_first
    kernel, (*given, _, _, _, _) = function(*given, left, *bounds, **tunables)
    return kernel_of(kernel), (tuple(given), left, right, bounds)


def forward(*arguments, **tunables):
    return launched(fa4_ragged.forward, lambda kernel: Attention(kernel.attention), arguments, tunables)


def gradients(*arguments, **tunables):
    return launched(fa4_ragged_backward.gradients, Gradients.like, arguments, tunables)
