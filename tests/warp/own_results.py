"""What Warp itself computes: forward by wp.launch, gradients by the adjoint launch that wp.Tape makes. `python own_results.py LIBRARY
INPUTS.npz RESULTS.npz DEVICE`, in the Python that has Warp; on the CPU compiled for the same CPUs as the bundle."""
import sys

import numpy as np
import warp as wp

wp.config.cpu_compiler_flags = "-target-cpu x86-64-v2"
wp.config.kernel_cache_dir = sys.argv[3] + ".cache"
wp.config.quiet = True
sys.path.insert(0, sys.argv[1])
import kernels  # noqa: E402

DEVICE = sys.argv[4]


def array(values, dtype=None, gradient=None):
    out = wp.array(values, dtype=dtype or float, device=DEVICE, requires_grad=gradient is not None)
    if gradient is not None:
        out.grad = wp.array(gradient, dtype=dtype or float, device=DEVICE)
    return out


def launch(kernel, dim, arrays, values=()):
    """Forward, and where the arrays have gradients the adjoint from what they held before."""
    if all(one.grad is None for one in arrays):
        return wp.launch(kernel, dim, inputs=[*arrays, *values], device=DEVICE)
    wp.launch(kernel, dim, inputs=[*arrays, *values], adj_inputs=[*(one.grad for one in arrays), *(None for _ in values)],
              adjoint=True, device=DEVICE)


def react(given):
    u, out = array(given["u"]), array(np.zeros_like(given["u"]))
    launch(kernels.react, u.shape, [u, out], [float(given["k"])])
    yield "out", out
    u, out = array(given["u"], gradient=np.zeros_like(given["u"])), array(given["dout"], gradient=given["dout"])
    launch(kernels.react, u.shape, [u, out], [float(given["k"])])
    yield "du", u.grad


def integrate(given):
    values = [float(given["dt"]), wp.vec3(*given["gravity"].tolist())]
    x, v, q = array(given["x"], wp.vec3), array(given["v"], wp.vec3), array(given["q"], wp.quat)
    launch(kernels.integrate, len(x), [x, v, q], values)
    yield from (("x_new", x), ("v_new", v))
    x, v = array(given["x"], wp.vec3, given["dx_new"]), array(given["v"], wp.vec3, given["dv_new"])
    q = array(given["q"], wp.quat, np.zeros_like(given["q"]))
    launch(kernels.integrate, len(x), [x, v, q], values)
    yield from (("dx", x.grad), ("dv", v.grad), ("dq", q.grad))


def energy(given):
    v, m, total = array(given["v"], wp.vec3), array(given["m"]), array(np.zeros(1, np.float32))
    launch(kernels.energy, len(v), [v, m, total])
    yield "total", total
    v, m = array(given["v"], wp.vec3, np.zeros_like(given["v"])), array(given["m"], None, np.zeros_like(given["m"]))
    total = array(np.zeros(1, np.float32), None, given["dtotal"])
    launch(kernels.energy, len(v), [v, m, total])
    yield from (("dv_energy", v.grad), ("dm", m.grad))


given = np.load(sys.argv[2])
np.savez(sys.argv[3], **{name: values.numpy() for make in (react, integrate, energy) for name, values in make(given)})
