"""FlashAttention-4's backward for Hopper (fa4_backward.py) in blocks that take their keys with all the query heads that share them, one after
the other: dk and dv are sums in registers, of which no parts are in memory.
"""
import cutlass
import fa4_backward
from cutlass import Boolean, Int32, const_expr, cute, extract_mlir_values, new_from_mlir_values
from cutlass.pipeline import PipelineUserType, make_pipeline_state
from fa4_backward import MostQueriesFirst
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.tile_scheduler import SingleTileScheduler, WorkTileInfo
from quack import copy_utils


SCALE, SCHEDULE = 25, 29  # of what `mma` is given


class HeadsInTurn:
    """Tiles of a block: its keys with each of the query heads that share them, of which there are `heads`."""
    ORDER = SingleTileScheduler  # of blocks

    def __init__(self, params, place, heads, turn):
        self.params, self.place, self.heads, self.turn = params, place, heads, turn

    @classmethod
    def create(cls, params, ctx=None, *, loc=None, ip=None):
        return cls(params, cls.ORDER.create(params)._blk_coord, params.num_head // cute.arch.grid_dim()[1], Int32(0))

    @property
    def first_head(self):
        return self.place[1] * self.heads

    def get_current_work(self, *, loc=None, ip=None):
        block, _, batch = self.place
        return WorkTileInfo((block, self.first_head + self.turn, batch, Int32(0)), self.turn < self.heads)

    initial_work_tile_info = get_current_work

    def prefetch_next_work(self, *, loc=None, ip=None):
        pass

    def advance_to_next_work(self, *, loc=None, ip=None):
        self.turn += 1
        return self.get_current_work()

    def parts(self):
        return self.params, self.place, self.heads, self.turn

    def __extract_mlir_values__(self):
        self._values = [extract_mlir_values(one) for one in self.parts()]
        return [value for part in self._values for value in part]

    def __new_from_mlir_values__(self, values):
        made = []
        for one, part in zip(self.parts(), self._values):
            made.append(new_from_mlir_values(one, values[:len(part)]))
            values = values[len(part):]
        return type(self)(*made)


class CausalInTurn(HeadsInTurn):
    ORDER = MostQueriesFirst


class HeadsOfKeys:
    """What a kernel of FlashAttention-4's does otherwise where its blocks' tiles are HeadsInTurn."""

    @cute.jit
    def load(self, q, k, v, dout, stats, products, shared_q, shared_k, shared_v, shared_dout, shared_stats, shared_products, atom_q, atom_k,
             atom_v, atom_dout, pipeline_q, pipeline_dout, block_info, lengths_of, schedule, sparsity, group_divmod):
        """Keys and values once, then the queries of each head."""
        tiles = schedule()
        block, key_head, batch = tiles.place
        lengths = lengths_of(batch)
        begin, end = block_info.get_m_block_min_max(lengths, block)
        alone = cute.make_layout(1)
        k, v = [lengths.offset_batch_K(one, batch, dim=3)[None, None, key_head] for one in (k, v)]
        q, dout = [lengths.offset_batch_Q(one, batch, dim=3) for one in (q, dout)]
        stats, products = [lengths.offset_batch_Q(one, batch, dim=2, padded=True) for one in (stats, products)]
        keys = cute.local_tile(k, (self.tile_n, self.tile_hdim), (block, 0))
        values = cute.local_tile(v, (self.tile_n, self.tile_hdimv), (block, 0))
        load_k, _, _ = copy_utils.tma_get_copy_fn(atom_k, 0, alone, keys, shared_k, single_stage=True)
        load_v, _, _ = copy_utils.tma_get_copy_fn(atom_v, 0, alone, values, shared_v, single_stage=True)
        state_q = make_pipeline_state(PipelineUserType.Producer, self.Q_stage)
        state_dout = make_pipeline_state(PipelineUserType.Producer, self.dO_stage)
        for turn in cutlass.range(tiles.heads, unroll=1):
            head = tiles.first_head + turn
            queries = cute.local_tile(q[None, None, head], (self.tile_m, self.tile_hdim), (None, 0))
            gradients = cute.local_tile(dout[None, None, head], (self.tile_m, self.tile_hdimv), (None, 0))
            load_q, _, _ = copy_utils.tma_get_copy_fn(atom_q, 0, alone, queries, shared_q)
            load_dout, _, _ = copy_utils.tma_get_copy_fn(atom_dout, 0, alone, gradients, shared_dout)
            load_stats, load_products = [copy_utils.cpasync_bulk_get_copy_fn(cute.local_tile(one[None, head], (self.tile_m,), (None,)), shared)
                                         for one, shared in ((stats, shared_stats), (products, shared_products))]
            load_q, load_stats = [copy_utils.tma_producer_copy_fn(one, pipeline_q) for one in (load_q, load_stats)]
            load_dout, load_products = [copy_utils.tma_producer_copy_fn(one, pipeline_dout) for one in (load_dout, load_products)]
            for m in cutlass.range(begin, end, unroll=1):
                first = turn == 0 and m == begin
                state = state_dout if const_expr(self.Q_stage != self.dO_stage) else state_q
                self.acquire(pipeline_q, state_q, first, "K", load_k)
                load_q(m, producer_state=state_q)
                if first:
                    cute.arch.griddepcontrol_wait()  # for stats and products
                load_stats(m, producer_state=state_q)
                self.acquire(pipeline_dout, state, first, "V", load_v)
                load_dout(m, producer_state=state)
                load_products(m, producer_state=state)
                state_q.advance()
                state_dout.advance()

    @cute.jit
    def acquire(self, pipeline, state, first: Boolean, name: cutlass.Constexpr, load):
        """The first stage of a block holds its keys, or values, as well."""
        if first:
            pipeline.producer_acquire(state, extra_tx_count=self.tma_copy_bytes[name])
            load(tma_bar_ptr=pipeline.producer_get_barrier(state))
        else:
            pipeline.producer_acquire(state)

    def mma(self, *given, is_dQ_wg):
        tiles = given[SCHEDULE]()
        self.first_head, self.last_head, self.key_head = tiles.first_head, tiles.first_head + tiles.heads - 1, tiles.place[1]
        super().mma(*given, is_dQ_wg=is_dQ_wg)

    def mma_one_m_block(self, *given, mask_fn, dKV_accumulate, **rest):
        later = mask_fn.keywords["head_idx"] != self.first_head
        return super().mma_one_m_block(*given, mask_fn=mask_fn, dKV_accumulate=Boolean(dKV_accumulate) | Boolean(later), **rest)


class Gradients(HeadsOfKeys, FlashAttentionBackwardSm90):
    def kernel(self, q, k, *rest):
        # Of 256 columns, what queries' heads have in the L2 cache counts for more than when a block ends.
        turns = CausalInTurn if self.is_causal and self.tile_hdim <= 192 else HeadsInTurn
        made = super().kernel(q, k, *[turns if one is SingleTileScheduler else one for one in rest])
        launch, key_heads = made.launch, cute.size(k, mode=[2])
        made.launch = lambda **how: launch(**how | {"grid": [how["grid"][0], key_heads, how["grid"][2]]})
        return made

    def mma(self, *given, is_dQ_wg):
        given = list(given)
        self.scale, given[SCALE] = given[SCALE], 1.0  # by which it would multiply dk after each head
        super().mma(*given, is_dQ_wg=is_dQ_wg)

    @cute.jit
    def epilogue_dKV(self, sums_v, dv, shared_v, sums_k, dk, shared_k, lengths, atom_k, atom_v, mma_k, mma_v, thread, block, head, batch,
                     *rest):
        if head == self.last_head:
            sums_k.store(sums_k.load() * self.scale)
            FlashAttentionBackwardSm90.epilogue_dKV(self, sums_v, dv, shared_v, sums_k, dk, shared_k, lengths, atom_k, atom_v, mma_k, mma_v,
                                                    thread, block, self.key_head, batch, *rest)


def gradients(*tensors_and_numbers, **tunables):
    kernel, arguments = fa4_backward.gradients(*tensors_and_numbers, **tunables)
    kernel.__class__ = Gradients
    return kernel, arguments
