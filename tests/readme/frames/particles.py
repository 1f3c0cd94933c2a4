import warp as wp


@wp.kernel
def integrate(x: wp.array(dtype=wp.vec3), v: wp.array(dtype=wp.vec3), q: wp.array(dtype=wp.quat), dt: float, gravity: wp.vec3):
    i = wp.tid()
    v[i] = v[i] + dt * (gravity + wp.quat_rotate(q[i], wp.vec3(1.0, 0.0, 0.0)))
    x[i] = x[i] + dt * v[i]
