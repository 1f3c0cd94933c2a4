"""Is a result within its tolerance of a float64 reference? NaN and infinities must be the same ones."""

import ml_dtypes
import numpy as np


def spacing(wanted, dtype):
    """The distance between neighbouring values of dtype around each wanted value."""
    info = ml_dtypes.finfo(dtype)
    mantissa, exponent = np.frexp(wanted)  # wanted is mantissa * 2 ** exponent, mantissa from 0.5 to 1
    regular = np.isfinite(mantissa) & (mantissa != 0)
    return np.ldexp(1.0, np.where(regular, np.maximum(exponent - 1, info.minexp), info.minexp) - info.nmant)


def worst(found, wanted, ulps=0.0, relative=0.0):
    """The largest error as a multiple of what is allowed (so up to 1 is fine), and a sentence.

    ulps are of the result's dtype; relative is to the largest finite magnitude of the row (last axis), and never less
    than an ulp: of a row of subnormal numbers nothing is nearer.
    """
    if found.dtype.kind in "iub":
        different = int(np.sum(found.astype(np.int64) != wanted.astype(np.int64)))
        return (float("inf") if different else 0.0), f"{different} of {found.size} integers differ"
    if found.size == 0:
        return 0.0, "nothing to compare"
    value, wanted = found.astype(np.float64), np.broadcast_to(np.asarray(wanted, np.float64), found.shape)
    if np.array_equal(value, wanted):
        return 0.0, "all are equal"
    limit = float(ml_dtypes.finfo(found.dtype).max)
    with np.errstate(over="ignore"):
        wanted = np.where(np.abs(wanted) > limit * (1 + 2.0 ** -12), np.copysign(np.inf, wanted), wanted)
    finite = np.isfinite(wanted)
    strange = (np.isnan(value) != np.isnan(wanted)) | (
        ~np.isnan(wanted) & ~finite & (value != wanted)) | (finite & ~np.isfinite(value))
    if strange.any():
        at = np.unravel_index(int(np.argmax(strange)), strange.shape)
        return float("inf"), (f"{int(strange.sum())} of {found.size} elements are not NaN or infinite as they "
                              f"should be; first at {list(map(int, at))}: {value[at]} for {wanted[at]}")
    value, exact = np.where(finite, value, 0), np.where(finite, wanted, 0)
    step = spacing(exact, found.dtype)
    allowed = ulps * step
    if relative:
        rows = exact if exact.ndim else exact.reshape(1)
        row_max = np.maximum(np.max(np.abs(rows), axis=-1, keepdims=True), np.finfo(np.float32).tiny)
        allowed = np.maximum(allowed, relative * np.broadcast_to(row_max, rows.shape).reshape(found.shape))
        allowed = np.maximum(allowed, step)
    error = np.abs(value - exact)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / allowed)
    at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    return float(ratio[at]), f"worst at {list(map(int, at))}: {value[at]!r} for {exact[at]!r}"
