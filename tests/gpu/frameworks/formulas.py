"""What is left to XLA gives on this GPU what kernels give, number for number: quantization by one scale, largest magnitudes, numbers of codes, and
what XLA makes of codes that are widened at once; every 16-bit float, random bits, ties and subnormal numbers of FP8, NaN and infinities.

Products, norms, softmax and losses are held to float64 by unlisted_programs, norm, accuracy and cross_entropy.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
from conformance import capi, quantize
from report import Report

SECONDS = 240
FORMATS = (jnp.float8_e4m3fn, jnp.float8_e5m2)


def functions():
    """{name: function of (x, scale)}"""
    made = {"amax": lambda x, scale: [kbj.amax(x)]}
    for dtype in FORMATS:
        name = np.dtype(dtype).name
        made |= {
            f"quantize to {name}": lambda x, scale, dtype=dtype: [*kbj.quantize(x, dtype, scale)],
            f"quantize to {name}, transposed": lambda x, scale, dtype=dtype: [*kbj.quantize(x, dtype, scale, transposed=True)],
            f"quantize to {name}, transposed alone": lambda x, scale, dtype=dtype: [*kbj.quantize(x, dtype, scale, rowwise=False, transposed=True)],
            f"quantize to {name}, widened": lambda x, scale, dtype=dtype: [kbj.quantize(x, dtype, scale).data.astype(jnp.float32)],
            f"fake_quantize by {name}": lambda x, scale, dtype=dtype: [kbj.fake_quantize(x, dtype, scale)],
            f"dequantize {name}": lambda x, scale, dtype=dtype: [kbj.dequantize(x.view(dtype), scale, x.dtype)]}
    return made


def results(function, x, allowed):
    """By each scale, with formulas allowed or not."""
    kbundle.allow_formulas(allowed)
    jax.clear_caches()
    program = jax.jit(function)
    made = [[np.asarray(one.astype(jnp.float32)) for one in program(x, jnp.float32(scale)) if one is not None] for scale in quantize.SCALES]
    kbundle.allow_formulas(True)
    return made


def main():
    report, began, compared, differ = Report("formulas"), time.monotonic(), 0, []
    kbundle.use(str(capi.ROOT / "build/kernels.kb"))
    with np.errstate(all="ignore"):
        cases = [(name, jnp.asarray(x.astype(dtype))) for dtype in (jnp.bfloat16, jnp.float16, jnp.float32) for name, x in quantize.tensors()]
    for number, (name, x) in enumerate(cases):
        if time.monotonic() - began > SECONDS:
            report.fact("not run for want of time", len(cases) - number)
            break
        for called, function in functions().items():
            left, kernels = (results(function, x, allowed) for allowed in (True, False))
            for scale, ours, theirs in zip(quantize.SCALES, left, kernels, strict=True):
                compared += 1
                if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(ours, theirs, strict=True)):
                    differ.append(f"{called} of {x.dtype} {name} by {scale:g}")
    report.hold("formulas give what kernels give", not differ, "; ".join(differ[:5]))
    report.bar("calls compared", compared, 1000, "calls", at_least=True)
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
