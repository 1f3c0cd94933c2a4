"""Kernels over rows, with what they share in a module beside them."""
import triton
import triton.language as tl
from moments import mean_and_rsigma


@triton.jit
def normalize_kernel(y, x, gain, K, row_stride, stride, BLOCK: tl.constexpr, HAS_GAIN: tl.constexpr, OUT: tl.constexpr,
                     EPSILON: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < K
    value = tl.load(x + row * row_stride + at * stride, mask=mask, other=0.0).to(tl.float32)
    mean, rsigma = mean_and_rsigma(value, mask, K, EPSILON)
    value = (value - mean) * rsigma
    if HAS_GAIN:
        value *= tl.load(gain + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * K + at, value.to(OUT), mask=mask)
