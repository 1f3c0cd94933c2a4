"""y = scale * x by tiles of 64 x 64 that a TMA load brings in; x may be a part of wider rows."""
import cutlass
import cutlass.cute as cute
import cutlass.utils
from cutlass.cute.nvgpu import cpasync

TILE, THREADS = 64, 128


class Scale:
    def __init__(self, dtype):
        self.dtype = dtype

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, scale: cutlass.Float32, stream):
        tile = cute.make_layout((TILE, TILE), stride=(TILE, 1))
        atom, view = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, tile, (TILE, TILE))
        blocks = (cute.ceil_div(cute.size(x, mode=[0]), TILE), cute.ceil_div(cute.size(x, mode=[1]), TILE), 1)
        self.kernel(atom, view, y, scale, tile).launch(grid=blocks, block=[THREADS, 1, 1], stream=stream)

    @cute.kernel
    def kernel(self, atom: cute.CopyAtom, x: cute.Tensor, y: cute.Tensor, scale: cutlass.Float32, tile: cute.Layout):
        thread, _, _ = cute.arch.thread_idx()
        row, column, _ = cute.arch.block_idx()
        memory = cutlass.utils.SmemAllocator()
        staged = memory.allocate_tensor(self.dtype, tile, byte_alignment=128)
        barrier = memory.allocate_array(cutlass.Int64, 1)
        if thread == 0:
            cute.arch.mbarrier_init(barrier, 1)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        source = cute.local_tile(x, (TILE, TILE), (row, column))
        to, what = cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(staged, 0, 2), cute.group_modes(source, 0, 2))
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(barrier, TILE * TILE * self.dtype.width // 8)
            cute.copy(atom, what, to, tma_bar_ptr=barrier)
        cute.arch.mbarrier_wait(barrier, 0)
        for i in cutlass.range(thread, TILE * TILE, THREADS):
            at, along = row * TILE + i // TILE, column * TILE + i % TILE
            if at < cute.size(y, mode=[0]) and along < cute.size(y, mode=[1]):
                y[at, along] = (staged[i // TILE, i % TILE].to(cutlass.Float32) * scale).to(self.dtype)


def scale(x, y, factor, *, target):
    return Scale(x.dtype), (x.like(align=16, divisible=16 * 8 // x.dtype.width), y, factor)
