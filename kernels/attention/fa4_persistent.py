"""FlashAttention-4's forward for Hopper (fa4.py) in blocks that stay: as many as run at a time, each with tile after tile, so that the next
tile's loads begin while this one's last products run, and its results leave beside the next one's products.
"""
import dataclasses

import fa4
from cutlass import Int32, cute
from cutlass.cute import FastDivmodDivisorV2
from cutlass.utils import LayoutEnum
from fa4 import AuxData
from flash_attn.cute import flash_fwd_sm90
from flash_attn.cute.named_barrier import NamedBarrierFwd
from flash_attn.cute.tile_scheduler import SingleTileLPTScheduler, StaticPersistentTileScheduler
from quack import sm90_utils

LOADS, STORES = 0, 4  # warps of FlashAttention-4's kernels
LEFT = 1 + max(NamedBarrierFwd)  # a barrier between these two: results have left


def next_tile(tile, block, blocks, section, tiles_of_section):
    """The tile that `block` of `blocks` takes after `tile`. Tiles are in sections, in each of which those with most keys are first: every
    second round of a section is dealt in reverse, so that the blocks' sums of keys stay even. `section` divides by tiles_of_section.

        >>> [next_tile(tile, 1, 4, 8, 8) for tile in (1, 6, 9)]
        [6, 9, 14]
    """
    _, place = divmod(tile, section)
    begin = tile - place
    end = begin + tiles_of_section
    first = (block + blocks - begin % blocks) % blocks
    turn = place // blocks + 1
    here = begin + turn * blocks + first + turn % 2 * (blocks - 1 - 2 * first)
    beyond = end + (block + blocks - end % blocks) % blocks
    return here + (here >= end) * (beyond - here)


class MostKeysFirst(SingleTileLPTScheduler):
    """Of causal masks and windows, whose tiles differ. A section is of heads whose keys and values stay in the L2 cache until its end."""

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        return MostKeysFirst(params, cute.arch.block_idx()[0], Int32(0), loc=loc, ip=ip)

    def advance_to_next_work(self, *, loc=None, ip=None):
        params = self.params
        self._tile_idx = next_tile(self._tile_idx, cute.arch.block_idx()[0], cute.arch.grid_dim()[0], params.l2_major_divmod,
                                   params.l2_minor * params.num_block)
        return self.get_current_work()


@cute.jit
def in_sections(params, heads):
    """FlashAttention-4's order, in sections of so many heads."""
    of_all = params.num_head * params.num_batch
    return dataclasses.replace(
        params, l2_minor=heads, num_hb_quotient=of_all // heads, l2_minor_divmod=FastDivmodDivisorV2(heads),
        l2_major_divmod=FastDivmodDivisorV2(heads * params.num_block), l2_minor_residual_divmod=FastDivmodDivisorV2(max(of_all % heads, 1)))


class Equal(StaticPersistentTileScheduler):
    """Of no mask: tiles of one head run side by side, and read the same keys."""

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        return (Int32(1), Int32(1), Int32(1))  # `Persistent` says how many


class Persistent:
    """A kernel of fa4.py with such blocks. How many multiprocessors there are, and of how many heads a section is, are the last of the numbers
    beside its tensors, and not its own."""

    def kernel(self, *args):
        *own, multiprocessors, heads = next(one for one in args if isinstance(one, AuxData)).scalars

        def given(one):
            if isinstance(one, AuxData):
                return AuxData(one.tensors, tuple(own) or None)
            return in_sections(one, heads) if isinstance(one, SingleTileLPTScheduler.Params) else one

        made = super().kernel(*map(given, args))
        launch, blocks = made.launch, multiprocessors * getattr(self, "blocks", 1)
        made.launch = lambda **how: launch(**how | {"grid": [blocks, 1, 1]})
        return made


class Apart(Persistent):
    """Whose results have shared memory of their own, where they would lie on the next tile's queries."""

    def _get_shared_storage_cls(self):
        queries = self.sQ_layout
        self.sQ_layout = sm90_utils.make_smem_layout(self.dtype, LayoutEnum.ROW_MAJOR, (self.tile_m, self.tile_hdim), 2)
        found = super()._get_shared_storage_cls()
        self.sQ_layout = queries
        return found

    def mma(self, qk, pv, o, stats, shared_q, shared_k, shared_v, shared_p, shared_o, *rest):
        shared_o = cute.make_tensor(shared_o.iterator + self.tile_m * self.tile_hdim, shared_o.layout)
        super().mma(qk, pv, o, stats, shared_q, shared_k, shared_v, shared_p, shared_o, *rest)


class OnValues(Persistent):
    """Whose results lie where values were, for want of room: the next tile's queries and keys are loaded meanwhile, and its first values,
    which are needed last, wait until the results have left."""

    def load(self, *args):
        self.first = None
        super().load(*args)
        self.wait_after_last()

    def load_KV(self, *args, block, K_or_V, **rest):
        self.first = block if self.first is None else self.first  # a tile's first call is of its first keys
        if K_or_V == "V":
            self.wait_before_first(block)
        super().load_KV(*args, block=block, K_or_V=K_or_V, **rest)

    def mma(self, qk, pv, o, stats, shared_q, shared_k, shared_v, shared_p, shared_o, *rest):
        shared_o = cute.make_tensor(shared_v.iterator, shared_o.layout)
        self.have_left()
        super().mma(qk, pv, o, stats, shared_q, shared_k, shared_v, shared_p, shared_o, *rest)

    def epilogue(self, *args):
        super().epilogue(*args)
        self.have_left()

    @cute.jit
    def have_left(self):
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == STORES:
            cute.arch.barrier_arrive(barrier_id=LEFT, number_of_threads=2 * cute.arch.WARP_SIZE)

    @cute.jit
    def wait_before_first(self, block):
        if block == self.first:
            cute.arch.barrier(barrier_id=LEFT, number_of_threads=2 * cute.arch.WARP_SIZE)

    @cute.jit
    def wait_after_last(self):
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == LOADS:
            cute.arch.barrier(barrier_id=LEFT, number_of_threads=2 * cute.arch.WARP_SIZE)


class One(Apart, fa4.Forward):
    pass


class Several(Apart, fa4.Several):
    pass


class Wide(OnValues, fa4.Forward):
    pass


class SeveralWide(OnValues, fa4.Several):
    pass


def order(tiles_of_no_mask):
    """FlashAttention-4 has one scheduler for causal masks, and another for all others."""
    flash_fwd_sm90.SingleTileLPTScheduler = MostKeysFirst
    flash_fwd_sm90.SingleTileScheduler = tiles_of_no_mask


def forward(*tensors_and_numbers, MASK, **tunables):
    *given, multiprocessors, cached = tensors_and_numbers
    order(Equal if MASK == fa4.NO_MASK else MostKeysFirst)
    kernel, arguments = fa4.forward(*given, MASK=MASK, **tunables)
    small, head = kernel.tile_m == 64, kernel.tile_hdim
    if isinstance(kernel, fa4.Several):
        kernel.__class__ = Several if head <= 128 else SeveralWide
    else:
        kernel.__class__ = One if small or head in (64, 128) else Wide
    if head > 192 and not small and MASK == fa4.CAUSAL:
        kernel.tile_n = 64  # in place of 80, of which more lies beyond the diagonal
    return kernel, [AuxData(None, (multiprocessors, cached)) if isinstance(one, AuxData) else one for one in arguments]
