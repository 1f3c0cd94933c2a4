"""The sum of all elements, in two kernels of one function: sums of blocks into the workspace, then one block adds those."""
import cutlass
import cutlass.cute as cute
import cutlass.utils


@cute.jit
def sum_of_block(value: cutlass.Float32, threads: cutlass.Constexpr) -> cutlass.Float32:
    memory = cutlass.utils.SmemAllocator()
    sums = memory.allocate_tensor(cutlass.Float32, cute.make_layout(threads // 32), byte_alignment=16)
    thread, _, _ = cute.arch.thread_idx()
    value = cute.arch.warp_reduction_sum(value)
    if thread % 32 == 0:
        sums[thread // 32] = value
    cute.arch.sync_threads()
    total = cutlass.Float32(0)
    for warp in cutlass.range_constexpr(threads // 32):
        total += sums[warp]
    return total


@cute.kernel
def blocks_kernel(x: cute.Tensor, partial: cute.Tensor, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * threads + thread
    value = cutlass.Float32(0)
    if at < cute.size(x):
        value = x[at].to(cutlass.Float32)
    total = sum_of_block(value, threads)
    if thread == 0:
        partial[block] = total


@cute.kernel
def last_kernel(partial: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    value = cutlass.Float32(0)
    for at in cutlass.range(thread, cute.size(partial), threads):
        value += partial[at]
    total = sum_of_block(value, threads)
    if thread == 0:
        y[0] = total


@cute.jit
def sum_all(x: cute.Tensor, partial: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr, stream):
    blocks_kernel(x, partial, threads).launch(grid=[cute.size(partial), 1, 1], block=[threads, 1, 1], stream=stream)
    last_kernel(partial, y, threads).launch(grid=[1, 1, 1], block=[threads, 1, 1], stream=stream)


def total(x, partial, y, *, target, THREADS):
    return sum_all, (x, partial, y, THREADS)
