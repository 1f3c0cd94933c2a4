"""What is left to XLA gives on this GPU what kernels give, number for number: quantization by one scale, largest magnitudes, numbers of codes, and
what XLA makes of codes that are widened at once; every 16-bit float, random bits, ties and subnormal numbers of FP8, NaN and infinities. Codes
behind an activation, or its gradient, are the same or neighbours.

Products, norms, softmax and losses are held to float64 by unlisted_programs, norm, accuracy and cross_entropy.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
from conformance import capi, quantize
from kbundle_kernels.quantize_activation import ACTIVATIONS
from report import Report
from unlisted import drawn

SECONDS = 250
BEHIND_ACTIVATIONS = ("every bf16", "random bits")  # of the tensors
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


def activations():
    """{name: function of (x, scale)}. What arrives at gradients is finite: times a slope that rounds to 0, or just not, infinity is another thing."""
    made = {}
    for activation, (_, gated) in ACTIVATIONS.items():
        of = (lambda x: jnp.stack([x, x[::-1]], 1)) if gated else (lambda x: x)
        made[activation] = lambda x, scale, of=of, activation=activation: [*kbj.quantize_activation(of(x), activation, scale, transposed=True)]
        made[f"gradient of {activation}"] = lambda x, scale, of=of, activation=activation: [
            *kbj.quantize_activation_gradient(jnp.where(jnp.isfinite(x), x, 1)[:, ::-1], of(x), activation, scale, transposed=True)]
    return made


def results(function, x, allowed, scales=quantize.SCALES):
    """By each scale, with formulas allowed or not."""
    kbundle.allow_formulas(allowed)
    jax.clear_caches()
    program = jax.jit(function)
    made = [[np.asarray(one) for one in program(x, jnp.float32(scale)) if one is not None] for scale in scales]
    kbundle.allow_formulas(True)
    return made


def equal(a, b):
    return np.array_equal(a.astype(np.float32), b.astype(np.float32), equal_nan=True)


def neighbours(a, b):
    """Codes that are the same or next to each other, or numbers that differ by rounding; NaN where the other has it."""
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    if a.dtype not in FORMATS:
        return np.allclose(wide_a, wide_b, rtol=4e-6, atol=0, equal_nan=True)
    numbers = ~np.isnan(wide_a)
    places = [np.where(bits > 127, 128 - bits, bits)[numbers] for bits in (codes.view(np.uint8).astype(np.int32) for codes in (a, b))]
    return np.array_equal(numbers, ~np.isnan(wide_b)) and np.abs(places[0] - places[1]).max(initial=0) <= 1


def main():
    report, compared, differ = Report("formulas"), 0, []
    kbundle.use(str(capi.ROOT / "build/kernels.kb"))
    with np.errstate(all="ignore"):
        cases = [(name, jnp.asarray(x.astype(dtype))) for dtype in (jnp.bfloat16, jnp.float16, jnp.float32) for name, x in quantize.tensors()]
    for _, (name, x) in drawn.in_time(report, cases, SECONDS):
        for called, function in functions().items():
            left, kernels = (results(function, x, allowed) for allowed in (True, False))
            for scale, ours, theirs in zip(quantize.SCALES, left, kernels, strict=True):
                compared += 1
                if not all(equal(a, b) for a, b in zip(ours, theirs, strict=True)):
                    differ.append(f"{called} of {x.dtype} {name} by {scale:g}")
        for called, function in (activations() if name in BEHIND_ACTIVATIONS else {}).items():
            (ours,), (theirs,) = (results(function, x, allowed, [2.0]) for allowed in (True, False))
            compared += 1
            if not all(neighbours(a, b) for a, b in zip(ours, theirs, strict=True)):
                differ.append(f"{called} of {x.dtype} {name}")
    report.hold("formulas give what kernels give", not differ, "; ".join(differ[:5]))
    report.bar("calls compared", compared, 1000, "calls", at_least=True)
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
