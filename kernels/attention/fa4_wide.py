"""FlashAttention-4's backward for Hopper of keys wider than values whose heads are shared. It asserts that there is none: a block puts its
sums of dk, in float, where its values and keys were, and of wide keys these reach on into dout's place. That is after them, as large as
needed, and read by nobody any more when a block comes to its sums: its last products are done.
"""
import fa4_backward
from cutlass import cute
from fa4_backward import FlashAttentionBackwardPostprocess, finish, prepare  # noqa: F401  the first and the last step


class WideGradients(fa4_backward.GroupedGradients):
    def __init__(self, dtype, head, head_v, grouped, *rest, **how):
        super().__init__(dtype, head, head_v, 1, *rest, **how)
        self.qhead_per_kvhead = grouped

    def _get_shared_storage_cls(self):
        v, k, dout = (cute.cosize(one) * self.dtype.width // 8 for one in (self.sV_layout, self.sK_layout, self.sdO_layout))
        assert self.tile_n * max(self.tile_hdim, self.tile_hdimv) * 4 <= v + k + dout, "a block's sums have no room"
        return super()._get_shared_storage_cls()


def gradients(q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, window, **tunables):
    fa4_backward.GroupedGradients = WideGradients
    return fa4_backward.gradients(q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, window, **tunables)


def finish_keys(dk_sum, dk, dv_sum, dv, scale, *, target, HEAD, HEADV, MASK):
    kernel, arguments = fa4_backward.finish_keys(dk_sum, dk, dv_sum, dv, scale, target=target, HEAD=HEAD, HEADV=HEADV, MASK=MASK)
    of = fa4_backward.blocks(HEAD, MASK)
    kernel.round_dv = FlashAttentionBackwardPostprocess(dv.dtype, HEADV, 90, of.keys, fa4_backward.THREADS, of.key_groups, of.keys_turned,
                                                        hdim_multiple_of=of.columns)
    return kernel, arguments
