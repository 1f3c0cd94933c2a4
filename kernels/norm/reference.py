"""Float64 references of the norm ops: what each op means. Infinities and NaN follow from the formulas.

epsilon counts as its float32 value, as the kernels receive it.
"""

import ml_dtypes
import numpy as np

FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
# By code: a table is many times as fast as the cast from a type of one byte.
NUMBERS = {name: np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64) for name, dtype in FP8.items()}
MOST = {"e4m3": np.float32(448), "e5m2": np.float32(57344)}

# Of these every row is by itself; dgamma and dbeta are sums over all rows.
INDEPENDENT_AXIS = {"rmsnorm_forward": -2, "layernorm_forward": -2}


def _weight(gamma, zero_centered_gamma):
    return gamma + 1.0 if zero_centered_gamma else gamma


def _rsigma(mean_square, epsilon):
    return 1.0 / np.sqrt(mean_square + np.float64(np.float32(epsilon)))


def rmsnorm_forward(x, gamma, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    """y, rsigma, and the sum where there is a residual; y is made of the sum before that is rounded."""
    with np.errstate(all="ignore"):
        x = x if residual is None else x + residual
        rsigma = _rsigma(np.mean(x * x, axis=-1), epsilon)
        y = x * rsigma[..., None] * _weight(gamma, zero_centered_gamma)
    return y, rsigma, None if residual is None else x


def layernorm_forward(x, gamma, beta=None, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    """y, mu, rsigma, and the sum where there is a residual. The variance is the biased one."""
    with np.errstate(all="ignore"):
        x = x if residual is None else x + residual
        mu = np.mean(x, axis=-1)
        centered = x - mu[..., None]
        rsigma = _rsigma(np.mean(centered * centered, axis=-1), epsilon)
        y = centered * rsigma[..., None] * _weight(gamma, zero_centered_gamma)
        y = y if beta is None else y + beta
    return y, mu, rsigma, None if residual is None else x


def _codes(y, scale, out_dtype, transposed, power_of_two, amax_epsilon):
    """q, q_t, amax, scale_inv, group_scale_inv of y, which counts as float32: what is done to it is done in float32."""
    with np.errstate(all="ignore"):
        y, most = y.astype(np.float32), MOST[out_dtype]
        narrow = lambda scaled: NUMBERS[out_dtype][np.clip(scaled, -most, most).astype(FP8[out_dtype]).view(np.uint8)]
        if scale is not None:
            by = np.asarray(scale, np.float32)
            q = narrow(y * by[0])
            amax = np.max(np.abs(y), initial=np.float32(0)).reshape(1).astype(np.float64)
            return q, q.reshape(-1, y.shape[-1]).T if transposed else None, amax, (np.float32(1) / by).astype(np.float64), None
        groups = -(-y.shape[-1] // 128)
        padded = np.zeros((*y.shape[:-1], groups * 128), np.float32)
        padded[..., :y.shape[-1]] = y
        blocks = padded.reshape(*y.shape[:-1], groups, 128)
        amax = np.max(np.abs(blocks), axis=-1)
        amax = np.where(np.isnan(amax), amax, np.maximum(amax, np.float32(max(amax_epsilon, 0))))
        inverse = amax / most
        if power_of_two:
            mantissa, exponent = np.frexp(amax.astype(np.float64) / most)  # of the smallest amax a float32 is 0
            inverse = np.ldexp(1.0, exponent - (mantissa == 0.5)).astype(np.float32)
        inverse = np.where((amax > 0) & np.isfinite(amax), np.maximum(inverse, np.float32(2.0 ** -126)), np.float32(1))
        inverse = inverse.astype(np.float32)
        q = narrow(blocks * (np.float32(1) / inverse)[..., None]).reshape(padded.shape)[..., :y.shape[-1]]
    return q, None, None, None, inverse.astype(np.float64)


def rmsnorm_quantize(x, gamma, residual=None, scale=None, *, out_dtype, epsilon=1e-6, zero_centered_gamma=False, transposed=False,
                     power_of_two=False, amax_epsilon=0.0):
    """The codes of y with their scales; then as rmsnorm_forward."""
    y, *more = rmsnorm_forward(x, gamma, residual, epsilon=epsilon, zero_centered_gamma=zero_centered_gamma)
    return *_codes(y, scale, out_dtype, transposed, power_of_two, amax_epsilon), *more


def layernorm_quantize(x, gamma, beta=None, residual=None, scale=None, *, out_dtype, epsilon=1e-6, zero_centered_gamma=False,
                       transposed=False, power_of_two=False, amax_epsilon=0.0):
    """The codes of y with their scales; then as layernorm_forward."""
    y, *more = layernorm_forward(x, gamma, beta, residual, epsilon=epsilon, zero_centered_gamma=zero_centered_gamma)
    return *_codes(y, scale, out_dtype, transposed, power_of_two, amax_epsilon), *more


def rmsnorm_backward(dy, x, rsigma, gamma, dsum=None, *, zero_centered_gamma=False):
    """dx (with dsum), dgamma."""
    with np.errstate(all="ignore"):
        normal = x * rsigma[..., None]
        g = dy * _weight(gamma, zero_centered_gamma)
        dx = rsigma[..., None] * (g - normal * np.mean(g * normal, axis=-1, keepdims=True))
        dgamma = np.sum((dy * normal).reshape(-1, x.shape[-1]), axis=0)
    return dx if dsum is None else dx + dsum, dgamma


def layernorm_backward(dy, x, mu, rsigma, gamma, dsum=None, *, zero_centered_gamma=False):
    """dx (with dsum), dgamma, dbeta."""
    with np.errstate(all="ignore"):
        normal = (x - mu[..., None]) * rsigma[..., None]
        g = dy * _weight(gamma, zero_centered_gamma)
        dx = rsigma[..., None] * (g - np.mean(g, axis=-1, keepdims=True) - normal * np.mean(g * normal, axis=-1, keepdims=True))
        dgamma, dbeta = (np.sum(a.reshape(-1, x.shape[-1]), axis=0) for a in (dy * normal, dy))
    return dx if dsum is None else dx + dsum, dgamma, dbeta


def make_inputs(op, problem, seed):
    """Rows whose mean is 1 at least on either side of 0, with a residual too: a mean near 0 is nothing but what rounding leaves of its
    terms. Backward ops get a rsigma as if epsilon were a fourth of the row's square, and dy * gamma that changes sign from column to
    column: else dx of rows of one or two elements is nothing but what rounding leaves of it."""
    rng = np.random.default_rng(seed)
    dims = problem["x"]
    x, middle = 2 * rng.standard_normal(dims), 3 * rng.standard_normal(dims[:-1])[..., None]
    side = np.where(middle < 0, -1.0, 1.0)
    x += middle + side - np.mean(x, axis=-1, keepdims=True)
    if op.endswith(("forward", "quantize")):
        return {"x": x, "scale": rng.uniform(0.1, 40, 1), "residual": side * np.abs(2 * rng.standard_normal(dims))}
    columns = np.arange(dims[-1])
    sign = np.where(columns % 2 == 0, 1.0, -1.0)
    gamma = 0.25 + rng.random(dims[-1])
    mu = np.mean(x, axis=-1) if op.startswith("layer") else np.zeros(dims[:-1])
    centered = x - mu[..., None]
    rsigma = 1 / np.sqrt(1.25 * np.mean(centered * centered, axis=-1) + 1e-2)
    return {"x": x, "mu": mu, "rsigma": rsigma, "gamma": gamma, "dy": sign * (0.25 + np.abs(rng.standard_normal(dims)))}
