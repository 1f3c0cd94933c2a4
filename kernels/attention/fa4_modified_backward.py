"""FlashAttention-4's backward for Hopper with a score modifier (fa4_modified.py), all of its kernels as one function."""
import cutlass
import fa4
import fa4_backward
from cutlass import cute
from fa4_backward import FlashAttentionBackwardPostprocess, FlashAttentionBackwardPreprocess
from fa4_modified import Block, Float32, given_of, select_, shown_modifier


class Modified:
    """Of a backward class of FlashAttention-4's. It asks for the slope after the gradient of the modified score, with a copy of the scores:
    here both are made at once, of what they share, and the copy has no reader."""
    tree = None

    def apply_score_mod(self, scores, thr_mma_SdP, batch_idx, head_idx, m_block, n_block, softmax_scale, seqlen_info, aux_data=None,
                        fastdiv_mods=None):
        block = Block(self.tree, scores, thr_mma_SdP, (self.tile_m, self.tile_n), self.SdP_swapAB, batch=batch_idx, head=head_idx,
                      block=(m_block, n_block), scale=softmax_scale, lengths=seqlen_info, given=aux_data.scalars)
        modifier, rows = block.modifier, seqlen_info.seqlen_q - block.modifier.first["q"]
        self.slopes = cute.make_fragment_like(scores)
        slopes = Block.as_rows(self.slopes, self.SdP_swapAB)
        hides = not modifier.bounded("value")
        for r, c, q, k in block:
            x = block.scores[r, c]
            slope = modifier.slope(x, q, k)
            slopes[r, c] = Float32(1.0 if slope is None else slope)
            y = Float32(modifier.value(x, q, k))
            # Past the last query scores are 0, of which it may make anything; that row's sum is infinite, which makes 0 of what is finite.
            block.scores[r, c] = select_(rows > q, y, -Float32.inf) if hides else y
        self.finite = modifier.bounded("slope")

    def apply_score_mod_bwd(self, gradients, scores, m_block, **rest):
        ours, slopes = (Block.as_rows(one, self.SdP_swapAB) for one in (gradients, self.slopes))
        for r in range(cute.size(ours, mode=[0])):
            for c in range(cute.size(ours, mode=[1])):
                made = ours[r, c] * slopes[r, c]
                # Where nothing flows, as from what is hidden, nothing does whatever the slope is.
                ours[r, c] = made if self.finite else select_(ours[r, c] == 0.0, Float32(0.0), made)


class ModifiedGradients(Modified, fa4_backward.GroupedGradients):
    pass


class FinishKeys:
    """The roundings of dk, times the scale of the scores, and of dv."""

    def __init__(self, make):
        self.round_dk, self.round_dv = make(), make()

    @cute.jit
    def __call__(self, dk_sum: cute.Tensor, dk: cute.Tensor, dv_sum: cute.Tensor, dv: cute.Tensor, scale: cutlass.Float32, stream):
        self.round_dk(dk_sum, dk, scale, None, None, None, None, stream=stream)
        self.round_dv(dv_sum, dv, cutlass.Float32(1.0), None, None, None, None, stream=stream)


BLOCKS = fa4_backward.Blocks(64)  # of either head: slopes take as many registers as scores do


class Backward:
    """As fa4_backward.py has them, with sums of dk and dv in float whether heads are shared or not."""

    def __init__(self, dtype, head, mask, tree):
        of, threads = BLOCKS, fa4_backward.THREADS
        self.local = mask == fa4.LOCAL
        self.prepare = FlashAttentionBackwardPreprocess(dtype, head, head, of.queries, hdim_multiple_of=of.columns)
        self.gradients = ModifiedGradients(
            dtype, head, head, 2, mask == fa4.CAUSAL, is_local=self.local, deterministic=False, tile_m=of.queries, tile_n=of.keys,
            Q_stage=of.stages[0], dO_stage=of.stages[1], PdS_stage=of.stages[2], SdP_swapAB=of.scores_turned, dKV_swapAB=of.keys_turned,
            dQ_swapAB=of.queries_turned, AtomLayoutMSdP=1, AtomLayoutNdKV=of.key_groups, AtomLayoutMdQ=of.query_groups,
            num_threads=threads + 128, dQ_single_wg=of.one_group, score_mod=shown_modifier, score_mod_bwd=shown_modifier)
        self.gradients.tree = tree
        self.finish = FlashAttentionBackwardPostprocess(dtype, head, 90, of.queries, threads, of.query_groups, of.queries_turned,
                                                        hdim_multiple_of=of.columns)
        self.finish_keys = FinishKeys(lambda: FlashAttentionBackwardPostprocess(
            dtype, head, 90, of.keys, threads, of.key_groups, of.keys_turned, hdim_multiple_of=of.columns))

    @cute.jit
    def __call__(self, given: tuple, sums: tuple, made: tuple, scale: cutlass.Float32, window: tuple, aux: tuple, stream):
        q, k, v, o, dout, stats = given
        products, stats2, dq_sum, dk_sum, dv_sum = sums
        dq, dk, dv = made
        left, right = window if cutlass.const_expr(self.local) else (None, None)
        self.prepare(o, dout, products, stats, stats2, dq_sum, None, None, None, None, None, cutlass.Float32(1.0), None, None, stream=stream)
        self.gradients(q, k, v, dout, stats2, products, dq_sum, dk_sum, dv_sum, scale, None, None, None, None, left, right, None, None, None,
                       aux, None, None, stream=stream)
        self.finish(dq_sum, dq, scale, None, None, None, None, stream=stream)
        self.finish_keys(dk_sum, dk, dv_sum, dv, scale, stream)


def backward(q, k, v, o, dout, stats, products, stats2, dq_sum, dk_sum, dv_sum, dq, dk, dv, scale, left, right, heads, *numbers, target, HEAD,
             MASK, MOD):
    q, k, v, o, dout, dq, dk, dv = fa4_backward.whole(q, k, v, o, dout, dq, dk, dv)
    sums = fa4_backward.sums(products, stats2, dq_sum, dk_sum, dv_sum)
    kernel = Backward(q.dtype, HEAD, MASK, MOD)
    return kernel, ((q, k, v, o, dout, stats), tuple(sums), (dq, dk, dv), scale, (left, right), given_of(MOD, heads, numbers))
