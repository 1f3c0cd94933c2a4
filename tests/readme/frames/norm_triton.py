import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(y, x, gamma, K, stride, scale, BLOCK: tl.constexpr, HAS_GAMMA: tl.constexpr, OUT: tl.constexpr, EPS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < K
    value = scale * tl.load(x + row * K + at * stride, mask=mask, other=0.0).to(tl.float32)
    value *= 1.0 / tl.sqrt_rn(tl.sum(value * value) / K + EPS)
    if HAS_GAMMA:
        value *= tl.load(gamma + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * K + at, value.to(OUT), mask=mask)
