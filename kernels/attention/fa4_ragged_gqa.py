"""The gradients of fa4_ragged_backward.py in blocks that take their keys with all the query heads that share them, as fa4_gqa.py does: of dk and
dv there are no sums in memory.
"""
import dataclasses

import fa4_ragged_backward
from cutlass import Int32, cute
from fa4_gqa import HeadsInTurn, HeadsOfKeys
from fa4_ragged_backward import OwnKeys
from fa4_sequences import placed
from flash_attn.cute.tile_scheduler import SingleTileVarlenScheduler


@dataclasses.dataclass
class Params(SingleTileVarlenScheduler.Params):
    """Of key heads."""
    heads: Int32 = None  # query heads of one


class SequencesInTurn(HeadsInTurn):
    @classmethod
    def create(cls, params, ctx=None, *, loc=None, ip=None):
        work = SingleTileVarlenScheduler.create(params).initial_work_tile_info()
        return cls(params, *cls.found(work.tile_idx, work.is_valid_tile, params.heads), Int32(0))

    @staticmethod
    @cute.jit
    def found(tile, there, heads: Int32):
        """Where the block is, and how many heads it takes: none past the last sequence."""
        block, key_head, batch, taken = Int32(0), Int32(0), Int32(0), Int32(0)
        if there:
            block, key_head, batch, _ = tile
            taken = heads
        return (block, key_head, batch), taken


class GroupedKeys(HeadsOfKeys, OwnKeys):
    def kernel(self, q, k, *rest):
        key_heads = cute.size(k, mode=[2])
        old = next(one for one in rest if isinstance(one, SingleTileVarlenScheduler.Params))
        params = Params(old.total_q, old.scheduling_mode, dataclasses.replace(old.decoder, num_head=key_heads),
                        cute.size(q, mode=[2]) // key_heads)
        changed = {id(old): params, id(SingleTileVarlenScheduler): SequencesInTurn}
        made = super().kernel(q, k, *[changed.get(id(one), one) for one in rest])
        launch = made.launch
        made.launch = lambda **how: launch(**how | {"grid": SingleTileVarlenScheduler.get_grid_shape(params)})
        return made

    def load(self, *arguments):
        HeadsOfKeys.load(self, *placed(arguments))

    @cute.jit
    def epilogue_dKV(self, sum_dv, dv, v_place, sum_dk, dk, k_place, lengths, map_dk, map_dv, products_dk, products_dv, thread, block,
                     head, sequence, *rest):
        if head == self.last_head:
            OwnKeys.epilogue_dKV(self, sum_dv, dv, v_place, sum_dk, dk, k_place, lengths, map_dk, map_dv, products_dk, products_dv, thread,
                                 block, self.key_head, sequence, *rest)


def gradients(*given, **tunables):
    made, arguments = fa4_ragged_backward.gradients(*given, **tunables, GROUPED=0)
    made.gradients.__class__ = GroupedKeys
    return made, arguments
