"""Softmax rows in Triton: one program per row, the row in registers. reference.py says what is computed.

Rows are multiples of 16 elements that fit BLOCK, so every access is vectors, and masks are constant over
each of them. SHIFT keeps exponentials of rows with a wide range out of the subnormal numbers, which exp2
flushes: all of them, and so their sum, are 2^SHIFT times as large. Slots past the row are cleared after
exp2 and not before it: with a scale of 0 even the exponential of -inf is NaN.
"""
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
DROPPED = tl.constexpr(-10000.0)
NOTHING = tl.constexpr(float("-inf"))


@triton.jit
def load(pointer, mask):
    """Floats that nobody reads again soon; 0 where the mask does not hold."""
    return tl.load(pointer, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)


@triton.jit
def store(pointer, value, mask):
    tl.store(pointer, value.to(pointer.dtype.element_ty), mask=mask, cache_modifier=".cs")


@triton.jit
def normalize(x, inside, scale, SHIFT: tl.constexpr):
    """The softmax of scale * x over the slots inside. The sign of the scale goes to x, so the largest x has
    the largest logit, and exponents are one fused multiply-add: large logits lose no digits."""
    x = tl.where(inside, tl.where(scale < 0, -x, x), NOTHING)
    scale2 = tl.abs(scale) * LOG2E
    subtract = tl.max(x, axis=0) * scale2 - SHIFT
    powers = tl.where(inside, tl.exp2(tl.fma(x, scale2, -subtract)), 0.0)
    return powers * (1.0 / tl.sum(powers, axis=0))


@triton.jit
def scaled_forward(y, x, scale, K, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * K
    at = tl.arange(0, BLOCK)
    inside = at < K
    store(y + begin + at, normalize(load(x + begin + at, inside), inside, scale, SHIFT), inside)


@triton.jit
def scaled_causal_forward(y, x, scale, K, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    row = tl.program_id(0)
    query = row % K
    begin = row.to(tl.int64) * K
    at = tl.arange(0, BLOCK)
    kept = at <= query
    # Whole groups of 16, so that loads stay vectors; what lies above the diagonal in them is not used.
    value = normalize(load(x + begin + at, at // 16 * 16 <= query), kept, scale, SHIFT)
    # 0 above the diagonal also where the row is NaN.
    store(y + begin + at, tl.where(kept, value, 0.0), at < K)


@triton.jit
def scaled_masked_forward(y, x, mask, scale, K, batch_stride, head_stride, BLOCK: tl.constexpr,
                          SHIFT: tl.constexpr):
    """The grid is (rows of an image, heads, batches); strides are in rows of the mask, 0 where it is broadcast."""
    query = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    begin = ((batch * tl.num_programs(1) + head) * tl.num_programs(0) + query) * K
    mask_begin = (batch * batch_stride + head * head_stride + query) * K
    at = tl.arange(0, BLOCK)
    inside = at < K
    value = load(x + begin + at, inside)
    dropped = tl.load(mask + mask_begin + at, mask=inside, other=0) != 0
    top = tl.max(tl.where(inside, tl.where(dropped, DROPPED, value * scale), NOTHING), axis=0)
    # The maximum is subtracted before the change of base: logits near -10000 stay exact.
    exponents = tl.where(dropped, DROPPED - top, tl.fma(value, scale, -top))
    powers = tl.where(inside, tl.exp2(exponents * LOG2E + SHIFT), 0.0)
    total = tl.sum(powers, axis=0)
    # A row whose largest logit is that of a dropped one is 0, but a NaN in it stays.
    inverse = tl.where((top == DROPPED) & (total == total), 0.0, 1.0 / total)
    store(y + begin + at, powers * inverse, inside)


@triton.jit
def scaled_backward(dx, dy, y, scale, K, BLOCK: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * K
    at = tl.arange(0, BLOCK)
    inside = at < K
    gradient = load(dy + begin + at, inside)
    value = load(y + begin + at, inside)
    # The sum in float64, since dy - sum cancels where y is close to one-hot. Products of 16-bit numbers
    # are exact before that.
    if dy.dtype.element_ty == tl.float32:
        products = gradient.to(tl.float64) * value.to(tl.float64)
    else:
        products = (gradient * value).to(tl.float64)
    dot = tl.sum(products, axis=0)
    high = dot.to(tl.float32)
    low = tl.where(high - high == 0.0, (dot - high.to(tl.float64)).to(tl.float32), 0.0)
    store(dx + begin + at, ((gradient - high) - low) * value * scale, inside)
