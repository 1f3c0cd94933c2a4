"""Simulation kernels in NVIDIA Warp: a stencil, particles moved in place, a sum by atomics, and what else arrays can be."""
import warp as wp

RATE = wp.constant(0.25)


@wp.func
def clamped(u: wp.array2d(dtype=float), i: int, j: int):
    return u[wp.clamp(i, 0, u.shape[0] - 1), wp.clamp(j, 0, u.shape[1] - 1)]


@wp.kernel
def react(u: wp.array2d(dtype=float), out: wp.array2d(dtype=float), k: float):
    i, j = wp.tid()
    c = u[i, j]
    around = clamped(u, i - 1, j) + clamped(u, i + 1, j) + clamped(u, i, j - 1) + clamped(u, i, j + 1)
    out[i, j] = c + k * (around - 4.0 * c) + RATE * c * (1.0 - c)


@wp.kernel
def integrate(x: wp.array(dtype=wp.vec3), v: wp.array(dtype=wp.vec3), q: wp.array(dtype=wp.quat), dt: float, gravity: wp.vec3):
    i = wp.tid()
    a = gravity + wp.quat_rotate(q[i], wp.vec3(wp.sin(x[i][0]), 1.0, 0.0)) - 0.1 * wp.length_sq(v[i]) * v[i]
    x[i] = x[i] + dt * v[i] + 0.5 * dt * dt * a
    v[i] = v[i] + dt * a


@wp.kernel
def energy(v: wp.array(dtype=wp.vec3), m: wp.array(dtype=float), total: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(total, 0, 0.5 * m[i] * wp.length_sq(v[i]))


@wp.kernel
def square(y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = y[i] * y[i]


@wp.kernel
def turn_f32(m: wp.array2d(dtype=wp.mat22), x: wp.array2d(dtype=wp.vec2), y: wp.array2d(dtype=wp.vec2)):
    i, j = wp.tid()
    y[i, j] = m[i, j] * x[i, j]


@wp.kernel
def turn_f64(m: wp.array2d(dtype=wp.mat22d), x: wp.array2d(dtype=wp.vec2d), y: wp.array2d(dtype=wp.vec2d)):
    i, j = wp.tid()
    y[i, j] = m[i, j] * x[i, j]


@wp.kernel
def mix(x: wp.array4d(dtype=float), w: wp.array(dtype=wp.uint8), y: wp.array4d(dtype=float), shift: wp.int16, negate: bool):
    i, j, k, l = wp.tid()
    value = (x[i, j, k, l] + float(shift)) * float(w[l])
    if negate:
        value = -value
    y[i, j, k, l] = value


TILE = wp.constant(64)


@wp.kernel
def row_sums(x: wp.array2d(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    total = wp.tile_zeros(shape=1, dtype=float)
    for k in range(x.shape[1] // TILE):
        total += wp.tile_sum(wp.tile_load(x[i], shape=TILE, offset=k * TILE, storage="shared"))
    wp.tile_store(y, total, offset=i)
