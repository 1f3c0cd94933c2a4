"""References of the quantize ops: what each op means, corner cases included.

Arrays arrive as float64. What decides about a code is arithmetic in float32, so it is done in float32 here, operation by
operation: results are not near to these, they are these. Only sums of columns are float64.
"""

import ml_dtypes
import numpy as np

FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
# By code: a table is many times as fast as the cast from a type of one byte.
NUMBERS = {name: np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64) for name, dtype in FP8.items()}
FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
MOST = {"e4m3": np.float32(448), "e5m2": np.float32(57344)}
HIGHEST = np.float32(2.0 ** 126)  # of scales that are computed: their reciprocals are normal numbers


def codes(scaled, out_dtype):
    """FP8 numbers nearest to float32 ones, the largest for what is beyond it: NaN stays NaN."""
    bounded = np.clip(scaled, -MOST[out_dtype], MOST[out_dtype])
    return NUMBERS[out_dtype][bounded.astype(FP8[out_dtype]).view(np.uint8)]


def largest(x):
    """The largest magnitude as f32[1], NaN where there is one, 0 of nothing."""
    return np.max(np.abs(np.asarray(x, np.float32)), initial=np.float32(0)).reshape(1)


def scale_of(amax, most):
    """The scale that brings amax to `most`, 2^126 at most; 1 where amax is 0 or not finite."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        scale = np.minimum(np.float32(most) / np.float32(amax), HIGHEST)
    return np.where((amax > 0) & np.isfinite(amax), scale, np.float32(1)).astype(np.float32)


def inverse(scale):
    with np.errstate(divide="ignore", over="ignore"):
        return np.float32(1) / np.asarray(scale, np.float32)


def product(x, scale):
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return np.asarray(x, np.float32) * np.float32(scale)


def amax(x):
    return largest(x).astype(np.float64)


def per_tensor(x, scale=None, *, out_dtype):
    found = largest(x)
    scale = scale_of(found, MOST[out_dtype]) if scale is None else np.asarray(scale, np.float32)
    return codes(product(x, scale[0]), out_dtype), found.astype(np.float64), inverse(scale).astype(np.float64)


def per_tensor_transpose(x, scale=None, *, out_dtype, rowwise=True, transposed=True, dbias=False):
    q, found, scale_inv = per_tensor(x, scale, out_dtype=out_dtype)
    with np.errstate(invalid="ignore"):
        return q if rowwise else None, q.T if transposed else None, found, scale_inv, x.sum(axis=0) if dbias else None


def dequantize(q, scale_inv, *, out_dtype):
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return product(q, np.asarray(scale_inv)[0]).astype(FLOATS[out_dtype]).astype(np.float64)


def update_scale(history, amax, scale, *, format, margin=0, algorithm="max"):
    history, amax, scale = (np.asarray(a, np.float32) for a in (history, amax, scale))
    now = np.concatenate([amax[..., None], history[..., 1:]], axis=-1)
    found = amax if algorithm == "most_recent" else np.max(np.abs(now), axis=-1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore", under="ignore"):
        wanted = np.minimum(MOST[format] / np.abs(found) * np.float32(2.0 ** -margin), HIGHEST)
    next_scale = np.where((np.abs(found) > 0) & np.isfinite(found), wanted, scale)
    moved = np.roll(now, -1, axis=-1)
    moved[..., 0] = 0
    return moved.astype(np.float64), next_scale.astype(np.float64), inverse(next_scale).astype(np.float64)


def make_inputs(op, problem, seed):
    """As _inputs makes them; but where a column or a few have a sum, numbers of one sign: a sum that is the largest of its row, and
    cancels, is nothing but what rounding leaves of its terms."""
    made = _inputs(op, problem, seed)
    if problem.get("dbias") and problem["x"][-1] < 4:
        rng = np.random.default_rng(seed + 1)
        made |= {name: np.abs(made.get(name, 2 * rng.standard_normal(problem[name]))) for name in ("x", "dy") if name in problem}
    return made


def _inputs(op, problem, seed):
    """Numbers of many sizes, some of which become subnormal in FP8 and some too large for it; scales are positive. Sizes of groups
    are random shares of all rows or of most; some groups are empty."""
    rng = np.random.default_rng(seed)
    if op == "update_scale":
        sizes = lambda dims: np.abs(rng.standard_normal(dims)) * 2.0 ** rng.integers(-40, 40, dims)
        return {name: sizes(problem[name]) for name in ("history", "amax", "scale")}
    made = {name: rng.uniform(0.01, 30, problem.get("sizes", 1)) for name in ("scale", "scale_inv") if name in problem}
    if op == "per_tensor_grouped":
        rows, groups = problem["x"][0], problem["sizes"][0]
        shares = rng.exponential(size=groups) * (rng.random(groups) > 0.2)
        cuts = np.floor(np.cumsum(shares) / max(shares.sum(), 1e-9) * (rows if seed % 2 == 0 else rows - rows // 8) + 0.5)
        made["sizes"] = np.diff(cuts, prepend=0).astype(np.int32)
    if op.startswith("per_block_activation"):
        return made | {name: away_from_zero(rng, problem[name]) for name in ("x", "dy") if name in problem}
    if "_activation" in op:
        return made | {name: rng.standard_normal(problem[name]) * size for name, size in (("x", 3), ("dy", 1)) if name in problem}
    if "x" in problem and not problem.get("dbias"):
        made["x"] = rng.standard_normal(problem["x"]) * 2.0 ** rng.integers(-12, 8, problem["x"])
    return made


def away_from_zero(rng, shape):
    """Numbers of both signs of which no activation, nor its gradient, makes any that f16 holds with less than all its digits."""
    return np.where(rng.random(shape) < 0.3, -rng.uniform(0.1, 0.5, shape), rng.uniform(0.25, 5, shape))


# ---- a scale for each block ----

def in_blocks(x, rows, columns):
    """x[M, N] as [tiles down, rows, tiles across, columns], zeros beyond its edges."""
    down, across = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    padded = np.zeros((down * rows, across * columns), np.float32)
    padded[:x.shape[0], :x.shape[1]] = x
    return padded.reshape(down, rows, across, columns)


def out_of_blocks(blocks, shape):
    down, rows, across, columns = blocks.shape
    return blocks.reshape(down * rows, across * columns)[:shape[0], :shape[1]]


def block_inverse(amax, out_dtype, power_of_two, amax_epsilon):
    """scale_inv of blocks: amax / most, rounded up to a power of two if so wanted; 1 where amax is 0 or not finite."""
    amax = np.where(np.isnan(amax), amax, np.maximum(amax, np.float32(max(amax_epsilon, 0))))
    with np.errstate(invalid="ignore", under="ignore"):
        exact = amax.astype(np.float64) / MOST[out_dtype]  # of the smallest amax a float32 is 0
        if power_of_two:
            mantissa, exponent = np.frexp(exact)
            exact = np.ldexp(1.0, exponent - (mantissa == 0.5)).astype(np.float32)
        bounded = np.maximum(exact, np.float32(2.0 ** -126))
    return np.where((amax > 0) & np.isfinite(amax), bounded, np.float32(1)).astype(np.float32)


def _per_block(x, rows, columns, out_dtype, power_of_two, amax_epsilon):
    blocks = in_blocks(x, rows, columns)
    scale_inv = block_inverse(np.max(np.abs(blocks), axis=(1, 3), initial=0), out_dtype, power_of_two, amax_epsilon)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scaled = blocks * inverse(scale_inv)[:, None, :, None]
    return out_of_blocks(codes(scaled, out_dtype), x.shape), scale_inv.astype(np.float64)


def per_group(x, *, out_dtype, scales="rows", power_of_two=False, amax_epsilon=0.0):
    q, scale_inv = _per_block(x, 1, 128, out_dtype, power_of_two, amax_epsilon)
    if scales == "columns":
        scale_inv = np.pad(scale_inv.T, ((0, 0), (0, -len(x) % 4)))
    return q, scale_inv


def per_tile(x, *, out_dtype, power_of_two=False, amax_epsilon=0.0):
    return _per_block(x, 128, 128, out_dtype, power_of_two, amax_epsilon)


def _as_products_load(q, scale_inv, blocks):
    """Codes, and scales of groups as [part of a line, line], lines rounded up to 4; None of both where blocks is none."""
    if blocks == "none":
        return None, None
    return q, np.pad(scale_inv.T, ((0, 0), (0, -len(q) % 4))) if blocks == "groups" else scale_inv


def per_block_transpose(x, *, out_dtype, rowwise="groups", transposed="groups", power_of_two=False, amax_epsilon=0.0, dbias=False):
    of = {"groups": lambda x: _per_block(x, 1, 128, out_dtype, power_of_two, amax_epsilon), "none": lambda x: (None, None),
          "tiles": lambda x: _per_block(x, 128, 128, out_dtype, power_of_two, amax_epsilon)}
    made = *_as_products_load(*of[rowwise](x), rowwise), *_as_products_load(*of[transposed](np.asarray(x).T), transposed)
    with np.errstate(invalid="ignore"):
        return *made, np.sum(x, axis=0, dtype=np.float64) if dbias else None


def mx_exponents(amax, out_dtype):
    """TransformerEngine's rounding to e8m0, biased by 127: up, at both ends as it does."""
    with np.errstate(invalid="ignore", under="ignore"):
        bits = (amax * (np.float32(1) / MOST[out_dtype])).view(np.uint32)
    exponent, mantissa = (bits >> 23) & 0xff, bits & 0x7fffff
    up = (mantissa > 0) & ~((exponent == 0) & (mantissa <= 0x400000))
    return np.where(np.isnan(amax), 0xff, np.where(np.isinf(amax), 0xfe, exponent + up)).astype(np.uint8)


def _mx(x, rows, columns, out_dtype):
    """Codes, and the exponents of blocks [down, across], biased by 127."""
    blocks = in_blocks(x, rows, columns)
    exponents = mx_exponents(np.max(np.abs(blocks), axis=(1, 3), initial=0), out_dtype)
    scale = np.where(exponents == 0xff, 1.0, 2.0 ** (127.0 - exponents))[:, None, :, None]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scaled = (blocks * scale).astype(np.float32)
    return out_of_blocks(codes(scaled, out_dtype), x.shape), exponents


def _padded(exponents, rows, columns):
    """e8m0 as its exponents say, in a whole number of rows and columns; what is beyond the blocks has the bits 0."""
    exponents = np.pad(exponents, ((0, -exponents.shape[0] % rows), (0, -exponents.shape[1] % columns)))
    return exponents.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)


def mxfp8(x, *, out_dtype, rowwise=True, columnwise=False):
    q, exponents = _mx(x, 1, 32, out_dtype)
    q_columns, column_exponents = _mx(x, 32, 1, out_dtype)
    return (q if rowwise else None, _padded(exponents, 128, 4) if rowwise else None,
            q_columns if columnwise else None, _padded(column_exponents, 4, 128) if columnwise else None)


# ---- an activation in front ----

def _sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


FUNCTIONS = {
    "gelu": lambda x: x * _sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)),
    "silu": lambda x: x * _sigmoid(x),
    "relu": lambda x: np.where(x < 0, 0, x),
    "squared_relu": lambda x: np.where(x < 0, 0, x) ** 2,
}


def _silu_slope(x, alpha):
    """The derivative of x sigmoid(alpha x), also where x is too far out for x * 0 to be a number."""
    s = _sigmoid(alpha * x)
    growth = s * (1 - s)
    return s + np.where(growth == 0, 0, x * growth * alpha)


def _gelu_slope(x):
    s = _sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))
    growth = s * (1 - s)
    return s + np.where(growth == 0, 0, x * growth * 2 * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x ** 2))


SLOPES = {"gelu": _gelu_slope, "silu": lambda x: _silu_slope(x, 1.0), "relu": lambda x: np.where(x > 0, 1.0, 0.0),
          "squared_relu": lambda x: 2 * FUNCTIONS["relu"](x)}


def activated(x, function, limit=7.0, alpha=1.702, offset=1.0):
    """f(x[:, 0]), times x[:, 1] where that is there, as float32."""
    limit, alpha, offset = (np.float64(np.float32(number)) for number in (limit, alpha, offset))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if function == "clamped_silu":
            m = np.minimum(x[:, 0], limit)
            y = m * _sigmoid(alpha * m) * (np.clip(x[:, 1], -limit, limit) + offset)
        else:
            y = FUNCTIONS[function](x[:, 0]) * (x[:, 1] if x.shape[1] == 2 else 1)
        return y.astype(np.float32)


def per_tensor_activation(x, scale, *, out_dtype, rowwise=True, transposed=False, **how):
    q, found, scale_inv = per_tensor(activated(x, **how), scale, out_dtype=out_dtype)
    return q if rowwise else None, q.T if transposed else None, found, scale_inv


def per_block_activation(x, *, function, limit=7.0, alpha=1.702, offset=1.0, **how):
    """Kernels round what the activation makes to x's dtype, which moves codes by one at most, and scales with them."""
    return per_block_transpose(activated(x, function, limit, alpha, offset), **how)[:4]


def activation_gradient(dy, x, function, limit=7.0, alpha=1.702, offset=1.0):
    """The gradient by x[M, A, H] of activated(x), as float32 [M, A * H]."""
    limit, alpha, offset = (np.float64(np.float32(number)) for number in (limit, alpha, offset))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if function == "clamped_silu":
            m, gate = np.minimum(x[:, 0], limit), np.clip(x[:, 1], -limit, limit) + offset
            slope = np.where(x[:, 0] > limit, 0, _silu_slope(m, alpha))
            planes = [dy * slope * gate, np.where(np.abs(x[:, 1]) > limit, 0 * dy, dy * (m * _sigmoid(alpha * m)))]
        else:
            slope = SLOPES[function](x[:, 0])
            planes = [dy * slope] if x.shape[1] == 1 else [dy * slope * x[:, 1], dy * FUNCTIONS[function](x[:, 0])]
        return np.concatenate(planes, axis=1).astype(np.float32)


def per_tensor_activation_gradient(dy, x, scale, *, out_dtype, rowwise=True, transposed=False, dbias=False, **how):
    dz = activation_gradient(dy, x, **how)
    q, found, scale_inv = per_tensor(dz, scale, out_dtype=out_dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = dz.sum(axis=0, dtype=np.float64).reshape(x.shape[1:])
    return (q.reshape(x.shape) if rowwise else None, q.T if transposed else None, found, scale_inv, sums if dbias else None)


def per_block_activation_gradient(dy, x, *, function, limit=7.0, alpha=1.702, offset=1.0, **how):
    q, *made, sums = per_block_transpose(activation_gradient(dy, x, function, limit, alpha, offset), **how)
    return (None if q is None else q.reshape(x.shape), *made, None if sums is None else sums.reshape(x.shape[1:]))


# ---- rows in groups ----

def places(sizes, rows):
    """Where groups begin and the last one ends, of any sizes: a negative one is 0, and rows end with the last there is."""
    summed = np.cumsum(np.maximum(np.asarray(sizes, np.int64), 0))
    return np.concatenate([[0], np.minimum(summed, rows)]).astype(np.int64)


def per_tensor_grouped(x, sizes, scale=None, *, out_dtype, rowwise=True, transposed=False):
    q, found, scale_inv = np.zeros(x.shape), np.zeros(len(sizes)), np.ones(len(sizes))
    offsets = places(sizes, len(x))
    for group, (first, last) in enumerate(zip(offsets, offsets[1:])):
        of_group = None if scale is None else scale[group:group + 1]
        q[first:last], found[group:group + 1], scale_inv[group:group + 1] = per_tensor(x[first:last], of_group, out_dtype=out_dtype)
    return q if rowwise else None, q.T if transposed else None, found, scale_inv
