"""FlashAttention-4's forward for Hopper on sequences that lie one after another (fa4.py): what their offsets say made safe, the attention, and
the rows that it leaves undefined.
"""
import dataclasses

import cutlass
import fa4
from cutlass import Int32, cute
from fa4 import AuxData
from fa4_sequences import THREADS, Placed, Sequences, fields_of, in_words, placed


@dataclasses.dataclass(frozen=True)
class Stored(Placed):
    """Of a block's results: seqlen_q bounds statistics, `rows` the rest."""
    rows: Int32 = None

    def offset_batch_Q(self, tensor, sequence, dim, padded=False, ragged=False):
        of = dataclasses.replace(self, seqlen_q=self.rows) if ragged else self
        return super(Stored, of).offset_batch_Q(tensor, sequence, dim, padded=padded, ragged=ragged)


class Ragged(fa4.Forward):
    # The bulk copy that would store a block wants a tensor map whose address lies outside of the tensor, beyond all addresses in some cases:
    # threads store, and no row past a sequence.
    use_tma_O = property(lambda self: False, lambda self, wanted: None)

    def load(self, *arguments):
        super().load(*placed(arguments))

    def mma(self, *arguments):
        super().mma(*placed(arguments))

    def epilogue(self, sums, lse, o, stats, shared, lengths, *rest):
        wanted = cutlass.min(lengths.seqlen_q, cute.size(stats, mode=[0]))  # which are absent where they have no rows
        lengths = Stored(**fields_of(lengths) | {"seqlen_q": wanted}, rows=lengths.seqlen_q)
        super(fa4.Forward, self).epilogue(sums, lse, o, stats, shared, lengths, *rest)


class Several(Ragged, fa4.Several):
    pass


class Attention:
    def __init__(self, attention, mask):
        self.attention, self.sequences, self.mask = attention, Sequences(mask), mask

    def ends(self, window):
        """How far a query sees before its diagonal and behind it, for FlashAttention-4."""
        return (window, Int32(0)) if self.mask == fa4.LOCAL else (None, None)

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, stats: cute.Tensor, q_offsets: cute.Tensor,
                 kv_offsets: cute.Tensor, q_rows: cute.Tensor, kv_rows: cute.Tensor, lengths: cute.Tensor, kv_lengths: cute.Tensor,
                 scale: cutlass.Float32, window: Int32, q_bound: Int32, kv_bound: Int32, from_first: Int32, stream):
        totals = q.shape[0], k.shape[0], q_bound, kv_bound
        self.sequences.place(q_offsets, kv_offsets, q_rows, kv_rows, lengths, kv_lengths, *totals, from_first).launch(
            grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)
        self.attention(q, k, v, o, stats, scale, q_rows, kv_rows, lengths, kv_lengths, None, *self.ends(window), None, None,
                       AuxData(None, None), None, None, stream=stream)
        self.sequences.clear_out(in_words(o, self.attention.tile_hdimv), stats, q_offsets, kv_offsets, *totals, window, from_first).launch(
            grid=[cute.ceil_div(q.shape[0], THREADS // 32), 1, 1], block=[THREADS, 1, 1], stream=stream)


def forward(q, k, v, o, stats, q_offsets, kv_offsets, q_rows, kv_rows, lengths, kv_lengths, scale, window, q_bound, kv_bound, from_first, *,
            target, HEAD, MASK, BLOCK):
    keys, in_registers = fa4.keys_of(BLOCK, HEAD, HEAD, MASK)
    kernel = (Several if BLOCK == 64 else Ragged)(
        q.dtype, HEAD, HEAD, 1, is_causal=MASK == fa4.CAUSAL, is_local=MASK == fa4.LOCAL, pack_gqa=False, tile_m=BLOCK, tile_n=keys,
        num_stages=2, num_threads=384, Q_in_regs=False, intra_wg_overlap=True, mma_pv_is_rs=in_registers, mask_mod=None, score_mod=None,
        has_aux_tensors=False, q_subtile_factor=None, paged_kv_non_tma=False)
    q, k, v, o = (one.like(align=16, divisible=8, dynamic=[2]) for one in (q, k, v, o))
    return Attention(kernel, MASK), (q, k, v, o, stats, q_offsets, kv_offsets, q_rows, kv_rows, lengths, kv_lengths, scale, window, q_bound,
                                     kv_bound, from_first)
