"""FlashAttention-4's forward for Hopper (fa4.py) in blocks that stay: as many as run at a time, each with tile after tile, so that the next
tile's loads begin while this one's last products run, and its results leave beside the next one's products.
"""
import fa4
from cutlass import Float32, Int32, cute
from cutlass.utils import LayoutEnum
from fa4 import AuxData
from flash_attn.cute import flash_fwd_sm90
from flash_attn.cute.tile_scheduler import SingleTileLPTScheduler, StaticPersistentTileScheduler
from quack import sm90_utils


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
    """Of causal masks and windows, whose tiles differ. A section is what FlashAttention-4's order has: heads whose keys the L2 cache holds."""

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        return MostKeysFirst(params, cute.arch.block_idx()[0], Int32(0), loc=loc, ip=ip)

    def advance_to_next_work(self, *, loc=None, ip=None):
        params = self.params
        self._tile_idx = next_tile(self._tile_idx, cute.arch.block_idx()[0], cute.arch.grid_dim()[0], params.l2_major_divmod,
                                   params.l2_minor * params.num_block)
        return self.get_current_work()


class Equal(StaticPersistentTileScheduler):
    """Of no mask: tiles of one head run side by side, and read the same keys."""

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        return (Int32(1), Int32(1), Int32(1))  # `Persistent` says how many


class Persistent:
    """A kernel of fa4.py with such blocks. Results have shared memory of their own, where they would lie on the next tile's queries."""

    def _get_shared_storage_cls(self):
        queries = self.sQ_layout
        self.sQ_layout = sm90_utils.make_smem_layout(self.dtype, LayoutEnum.ROW_MAJOR, (self.tile_m, self.tile_hdim), 2)
        found = super()._get_shared_storage_cls()
        self.sQ_layout = queries
        return found

    def mma(self, qk, pv, o, stats, shared_q, shared_k, shared_v, shared_p, shared_o, *rest):
        shared_o = cute.make_tensor(shared_o.iterator + self.tile_m * self.tile_hdim, shared_o.layout)
        super().mma(qk, pv, o, stats, shared_q, shared_k, shared_v, shared_p, shared_o, *rest)

    def kernel(self, *args):
        made = super().kernel(*args)
        launch, blocks = made.launch, self.multiprocessors * getattr(self, "blocks", 1)
        made.launch = lambda **how: launch(**how | {"grid": [blocks, 1, 1]})
        return made


class One(Persistent, fa4.Forward):
    pass


class Several(Persistent, fa4.Several):
    pass


class Attention:
    """The kernel, told how many multiprocessors there are."""

    def __init__(self, attention, mask):
        self.attention, self.mask = attention, mask

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, stats: cute.Tensor, scale: Float32, window: Int32,
                 multiprocessors: Int32, stream):
        self.attention.multiprocessors = multiprocessors
        ends = (window, Int32(0)) if self.mask == fa4.LOCAL else (None, None)
        self.attention(q, k, v, o, stats, scale, None, None, None, None, None, *ends, None, None, AuxData(None, None), None, None, stream=stream)


def forward(*tensors_and_numbers, MASK, **tunables):
    *given, multiprocessors = tensors_and_numbers
    # FlashAttention-4 has the one for causal masks, and the other for all others.
    flash_fwd_sm90.SingleTileLPTScheduler = MostKeysFirst
    flash_fwd_sm90.SingleTileScheduler = Equal if MASK == fa4.NO_MASK else MostKeysFirst
    kernel, (q, k, v, o, *_) = fa4.forward(*given, MASK=MASK, **tunables)
    kernel.__class__ = Several if isinstance(kernel, fa4.Several) else One
    return Attention(kernel, MASK), (q, k, v, o, *given[4:], multiprocessors)
