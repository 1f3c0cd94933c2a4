"""FlashAttention-4 on sequences that have rows of none between them (fa4_gaps.py, fa4_gaps_backward.py) within windows whose right end is a
number that a launch gives, too (fa4_ragged_ahead.py).
"""
import fa4
import fa4_gaps
import fa4_gaps_backward
from cutlass import Int32, cute
from fa4_gaps import Gaps, length_of, row_and_lane
from fa4_ragged_ahead import Ahead, Ends, OfGradients, clear_unseen, launched
from fa4_sequences import owner_of


class Between(Ends, Gaps):
    @cute.kernel
    def clear_between(self, o: cute.Tensor, stats: cute.Tensor, q_offsets: cute.Tensor, q_lengths: cute.Tensor, keys_of: cute.Tensor,
                      q_total: Int32, q_bound: Int32, left: Int32, right: Int32, from_first: Int32):
        row, lane = row_and_lane()
        if row < q_total:
            sequence, number, most = owner_of(q_offsets, row, q_total, q_bound)
            queries, keys = length_of(q_lengths, sequence, most), keys_of[sequence]
            clear_unseen(o, stats, row, lane, number, queries, keys, left, right, from_first)


class Attention(Ahead, fa4_gaps.Attention):
    behind = fa4_gaps.Attention.__call__

    def __init__(self, attention):
        super().__init__(attention, fa4.LOCAL)
        self.sequences = Between(fa4.LOCAL)


class Gradients(OfGradients, fa4_gaps_backward.Gradients):
    behind = fa4_gaps_backward.Gradients.__call__


def forward(*arguments, **tunables):
    return launched(fa4_gaps.forward, lambda kernel: Attention(kernel.attention), arguments, tunables)


def gradients(*arguments, **tunables):
    return launched(fa4_gaps_backward.gradients, Gradients.like, arguments, tunables)
