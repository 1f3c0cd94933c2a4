"""Kernels without anything of their own folder."""
import triton
import triton.language as tl


@triton.jit
def add_kernel(out, x, y, n, scale, magnitude, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a = tl.load(x + at, mask=mask).to(tl.float32)
    b = tl.load(y + at, mask=mask).to(tl.float32)
    value = a + scale * b
    value = tl.where(magnitude, tl.abs(value), value)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def partial_sums_kernel(partial, x, n, BLOCK: tl.constexpr):
    value = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        value += tl.load(x + at, mask=at < n, other=0.0)
    tl.store(partial + tl.program_id(0), tl.sum(value))


@triton.jit
def sum_kernel(y, partial, BLOCK: tl.constexpr):
    tl.store(y, tl.sum(tl.load(partial + tl.arange(0, BLOCK))))
