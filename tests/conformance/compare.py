"""Is a result within its tolerance of a float64 reference? NaN and infinities must be the same ones."""

import functools

import ml_dtypes
import numpy as np

EXPONENT = np.int64(0x7ff << 52)  # of a float64


def spacing(wanted, dtype):
    """The distance between neighbouring values of dtype around each wanted value; around what is not finite, of the smallest ones."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.asarray(wanted, np.float64).view(np.int64) & EXPONENT  # alone, a power of two
    powers = np.where(exponent == EXPONENT, 0, exponent).view(np.float64)
    return np.maximum(powers, np.ldexp(1.0, info.minexp)) * np.ldexp(1.0, -info.nmant)


@functools.cache
def _numbers(dtype):
    """Of a dtype of one byte, every code's number."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)


def wide(array):
    """As float64; where a dtype has few codes, by a table, which is many times as fast."""
    return _numbers(array.dtype)[array.view(np.uint8)] if array.dtype.itemsize == 1 else array.astype(np.float64)


def largest(dtype):
    """What is beyond it is beyond the largest number of dtype, and not rounded to it: infinite."""
    return min(float(ml_dtypes.finfo(dtype).max) * (1 + 2.0 ** -12), np.finfo(np.float64).max)


def finite_parts(value, wanted, dtype):
    """Both with 0 where no number is wanted, what is as wanted beyond dtype's largest number being infinite; and where one is neither NaN
    nor infinite as it should be, or None."""
    limit = largest(dtype)
    if np.isfinite(value).all() and (np.abs(wanted) <= limit).all():
        return value, wanted, None
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.where(np.abs(wanted) > limit, np.copysign(np.inf, wanted), wanted)
    finite = np.isfinite(wanted)
    strange = (np.isnan(value) != np.isnan(wanted)) | (
        ~np.isnan(wanted) & ~finite & (value != wanted)) | (finite & ~np.isfinite(value))
    if strange.any():
        return value, wanted, strange
    return np.where(finite, value, 0), np.where(finite, wanted, 0), None


def rows_largest(wanted, dtype):
    """The largest finite magnitude of each row (last axis), and never less than the smallest normal number of float32."""
    size = np.abs(wanted)
    inside = size <= largest(dtype)
    if not inside.all():
        size = np.where(inside, size, 0)
    return np.maximum(np.max(size, axis=-1 if size.ndim else None, keepdims=True), np.finfo(np.float32).tiny)


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
    value, wanted = wide(found), np.broadcast_to(np.asarray(wanted, np.float64), found.shape)
    differs = value != wanted  # NaN among them; what is equal needs no more
    count = np.count_nonzero(differs)
    if count == 0:
        return 0.0, "all are equal"
    few = 4 * count < found.size
    part = (lambda array: array[differs]) if few else (lambda array: array)
    at = lambda number: list(map(int, np.unravel_index(np.flatnonzero(differs)[number] if few else number, found.shape)))
    value, exact, strange = finite_parts(part(value), part(wanted), found.dtype)
    if strange is not None:
        first = int(np.argmax(strange))
        return float("inf"), (f"{int(strange.sum())} of {found.size} elements are not NaN or infinite as they should be; first at "
                              f"{at(first)}: {value.flat[first]} for {exact.flat[first]}")
    step = spacing(exact, found.dtype)
    allowed = ulps * step
    if relative:
        of_row = rows_largest(wanted, found.dtype)
        of_row = part(np.broadcast_to(of_row, found.shape)) if few else of_row
        allowed = np.maximum(np.maximum(allowed, step), relative * of_row)
    error = np.abs(value - exact)
    with np.errstate(divide="ignore"):
        ratio = np.divide(error, allowed, out=np.zeros(error.shape), where=error != 0)
    first = int(np.argmax(ratio))
    return float(ratio.flat[first]), f"worst at {at(first)}: {value.flat[first]!r} for {exact.flat[first]!r}"
