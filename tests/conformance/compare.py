"""Is a result within its tolerance of a float64 reference? NaN and infinities must be the same ones."""

import ml_dtypes
import numpy as np

EXPONENT = np.int64(0x7ff << 52)  # of a float64


def spacing(wanted, dtype):
    """The distance between neighbouring values of dtype around each wanted value; around what is not finite, of the smallest ones."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.asarray(wanted, np.float64).view(np.int64) & EXPONENT  # alone, a power of two
    powers = np.where(exponent == EXPONENT, 0, exponent).view(np.float64)
    return np.maximum(powers, np.ldexp(1.0, info.minexp)) * np.ldexp(1.0, -info.nmant)


def finite_parts(value, wanted, dtype):
    """Both with 0 where no number is wanted; and a sentence where one is neither NaN nor infinite as it should be. What is beyond the
    largest number of dtype, and not rounded to it, is infinite."""
    limit = float(ml_dtypes.finfo(dtype).max) * (1 + 2.0 ** -12)
    if np.isfinite(value).all() and (np.abs(wanted) <= min(limit, np.finfo(np.float64).max)).all():
        return value, wanted, None
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.where(np.abs(wanted) > limit, np.copysign(np.inf, wanted), wanted)
    finite = np.isfinite(wanted)
    strange = (np.isnan(value) != np.isnan(wanted)) | (
        ~np.isnan(wanted) & ~finite & (value != wanted)) | (finite & ~np.isfinite(value))
    if not strange.any():
        return np.where(finite, value, 0), np.where(finite, wanted, 0), None
    at = np.unravel_index(int(np.argmax(strange)), strange.shape)
    return value, wanted, (f"{int(strange.sum())} of {value.size} elements are not NaN or infinite as they "
                           f"should be; first at {list(map(int, at))}: {value[at]} for {wanted[at]}")


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
    value, exact, wrong = finite_parts(value, wanted, found.dtype)
    if wrong:
        return float("inf"), wrong
    step = spacing(exact, found.dtype)
    allowed = ulps * step
    if relative:
        row_max = np.maximum(np.max(np.abs(exact), axis=-1 if exact.ndim else None, keepdims=True), np.finfo(np.float32).tiny)
        allowed = np.maximum(np.maximum(allowed, step), relative * row_max)
    error = np.abs(value - exact)
    with np.errstate(divide="ignore"):
        ratio = np.divide(error, allowed, out=np.zeros(error.shape), where=error != 0)
    at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    return float(ratio[at]), f"worst at {list(map(int, at))}: {value[at]!r} for {exact[at]!r}"
