"""FlashAttention-4's forward for Hopper with a score modifier, which the builder hands over as a tree (score_tree.py): what it computes
stands in the kernel, between the scores' product and the mask. Every mask is one kernel, of windows that a call gives. Its blocks stay
for tile after tile (fa4_persistent.py), those with most keys first, which FlashAttention-4 has of causal masks alone.
"""
import functools

import cutlass
import fa4  # first: it stands in for torch
import fa4_persistent
from cutlass import Boolean, Float32, Int32, Int64, cute
from cutlass.cutlass_dsl import select_
from fa4 import AuxData
from quack import layout_utils
from score_tree import Modifier, Operations

# tanh(x) = x p(x^2) / q(x^2) with 6e-7 relative error, and from 7.6 on the 1 - 5e-7 that it is there: one special function, where
# 1 - 2 / (1 + e^2x) has two and needs a polynomial near 0.
LOG2_E = 1.4426950408889634
TANH_END, TANH_P = 7.6, (1.18448261e-05, 0.00298861577, 0.129603431, 0.999999881)
TANH_Q = (2.59466589e-07, 0.000244038092, 0.0239683781, 0.462935984, 1.0)


class Device(Operations):
    """As kbundle/score_math.h and score_fast_math.h have them on a GPU, with their errors."""

    def real(self, integer):
        return Float32(integer)

    def select(self, condition, a, b):
        return (a if condition else b) if isinstance(condition, bool) else select_(condition, Float32(a), Float32(b))

    def both(self, a, b):
        return Boolean(a) & Boolean(b)

    def either(self, a, b):
        return Boolean(a) | Boolean(b)

    def negated(self, a):
        return Boolean(a) ^ Boolean(True)

    def inverse(self, a):
        return cute.arch.rcp_approx(Float32(a))

    def abs(self, a):
        return cute.math.abs(Float32(a))

    def sqrt(self, a):
        return cute.math.sqrt(Float32(a))

    def log(self, a):
        return cute.math.log(Float32(a))

    def erf(self, a):
        return cute.math.erf(Float32(a))

    def pow(self, a, b):
        return cute.math.pow(Float32(a), Float32(b))

    def exp(self, a):
        return cute.math.exp(Float32(a))

    def fast_exp(self, a):
        return cute.math.exp2(Float32(a) * LOG2_E, fastmath=True)

    def fast_tanh(self, a):
        return cute.math.tanh(Float32(a), fastmath=True)

    def sigmoid(self, a):
        return self.inverse(self.exp(-a) + 1.0)

    def tanh(self, a):
        return self.scaled_tanh(1.0, Float32(a))

    def product_sum(self, a, b, c):
        return cute.math.fma(Float32(a), Float32(b), Float32(c))

    def polynomial(self, x, numbers):
        return functools.reduce(lambda sum, number: self.product_sum(sum, x, number), numbers)

    def scaled_tanh(self, factor, x):
        near = cute.math.min(x * factor, Float32(TANH_END), propagate_nan=True)
        near = cute.math.max(near, Float32(-TANH_END), propagate_nan=True)
        z = near * near
        return near * self.polynomial(z, TANH_P) * self.inverse(self.polynomial(z, TANH_Q))


class Block:
    """The scores of one thread in a tile, and what a modifier makes of them."""

    def __init__(self, tree, scores, mma, tile, swapped, *, batch, head, block, scale, lengths, given):
        """tile, block: of queries and of keys. swapped: keys are the rows of `scores`. given: a modifier's numbers, its tensors, how many
        heads there are."""
        axes = tile[::-1] if swapped else tile
        self.query, self.key = (1, 0) if swapped else (0, 1)
        self.scores = self.as_rows(scores, swapped)
        places = cute.make_identity_tensor(axes)
        own = layout_utils.reshape_acc_to_mn(mma.partition_C(places), transpose=swapped)
        # A thread's places are those of the first one, which are known now, so far behind its own first.
        self.places = layout_utils.reshape_acc_to_mn(mma.get_slice(0).partition_C(places), transpose=swapped)
        self.rows, self.columns = (cute.size(self.scores, mode=[axis]) for axis in (0, 1))
        self.lengths, self.heads = lengths, given[-1]
        self.tensors, self.dims = given[tree["scalars"]:-1], tree["tensors"]
        first = {"b": batch, "h": head, "q": block[0] * tile[0] + own[0][self.query], "k": block[1] * tile[1] + own[0][self.key]}
        self.modifier = Modifier(tree, Device(), scale=scale, scalars=given[:tree["scalars"]], first=first, read=self.read)

    @staticmethod
    def as_rows(scores, swapped):
        return layout_utils.reshape_acc_to_mn(scores, transpose=swapped)

    def read(self, tensor, place):
        """Tiles end past the last query and the last key: there, the last element is read."""
        at = None
        for dim in self.dims[tensor]:
            index = place[dim][0] + place[dim][1]
            if dim in "qk":
                index = cutlass.min(index, (self.lengths.seqlen_q if dim == "q" else self.lengths.seqlen_k) - 1)
            size = {"h": self.heads, "q": self.lengths.seqlen_q, "k": self.lengths.seqlen_k}.get(dim)
            at = Int64(index) if at is None else at * Int64(size) + Int64(index)
        return cute.make_tensor(self.tensors[tensor].iterator + at, cute.make_layout(1))[0]

    def __iter__(self):
        """(row, column, query, key) of each, the last two behind the first; those that share a query or a key one after the other."""
        rows, columns = range(self.rows), range(self.columns)
        order = [(r, c) for c in columns for r in rows] if self.rows <= self.columns else [(r, c) for r in rows for c in columns]
        for r, c in order:
            yield r, c, self.places[r, 0][self.query], self.places[0, c][self.key]


def shown_modifier():
    """Tells FlashAttention-4 that there is one; what it does, `apply_score_mod` says."""


class Modified:
    """Of a forward class of FlashAttention-4's."""
    tree = None

    def apply_score_mod(self, mma, batch, head, m_block, scores, n_block, softmax_scale, seqlen, aux_data=None, fastdiv_mods=None):
        block = Block(self.tree, scores, mma, (self.tile_m, self.tile_n), False, batch=batch, head=head, block=(m_block, n_block),
                      scale=softmax_scale, lengths=seqlen, given=aux_data.scalars)
        for r, c, q, k in block:
            block.scores[r, c] = block.modifier.value(block.scores[r, c], q, k)


class ModifiedForward(Modified, fa4_persistent.One):
    pass


class ModifiedSeveral(Modified, fa4_persistent.Several):
    pass


def given_of(tree, heads, numbers, *more):
    """What of all that a call may give a modifier has: FlashAttention-4 hands it on to the kernel."""
    scalars, tensors = numbers[:8], numbers[8:]
    return AuxData(None, (*scalars[:tree["scalars"]], *tensors[:len(tree["tensors"])], heads, *more))


def forward(q, k, v, o, stats, scale, left, right, multiprocessors, cached, heads, *numbers, target, HEAD, MASK, BLOCK, MOD):
    keys, in_registers = fa4.keys_of(BLOCK, HEAD, HEAD, MASK)
    kernel = (ModifiedSeveral if BLOCK == 64 else ModifiedForward)(
        q.dtype, HEAD, HEAD, 1, is_causal=MASK == fa4.CAUSAL, is_local=MASK == fa4.LOCAL, pack_gqa=False, tile_m=BLOCK, tile_n=keys,
        num_stages=2, num_threads=384, Q_in_regs=False, intra_wg_overlap=True, mma_pv_is_rs=in_registers, mask_mod=None,
        score_mod=shown_modifier, has_aux_tensors=False, q_subtile_factor=None, paged_kv_non_tma=False)
    kernel.tree = MOD
    fa4_persistent.order(fa4_persistent.MostKeysFirst)
    q, k, v, o = (one.like(align=16, divisible=8, dynamic=[3]) for one in (q, k, v, o))
    window = (left, right) if MASK == fa4.LOCAL else (None, None)
    given = given_of(MOD, heads, numbers, multiprocessors, cached)
    return kernel, (q, k, v, o, stats, scale, None, None, None, None, None, *window, None, None, given, None, None)
