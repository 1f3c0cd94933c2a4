"""What sim computes, in float64."""
import numpy as np

RATE = 0.25
GRAVITY = (0.0, 0.0, -9.81)


def neighbours(u):
    """Of every element the four around it, the border's own beyond it."""
    padded = np.pad(u, 1, mode="edge")
    return padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]


def react(u, *, k=0.1):
    return u + k * (sum(neighbours(u)) - 4 * u) + RATE * u * (1 - u)


def react_backward(u, dout, *, k=0.1):
    rows, columns = np.indices(u.shape)
    du = dout * (1 - 4 * k + RATE * (1 - 2 * u))
    for row, column in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        at = (np.clip(rows + row, 0, u.shape[0] - 1), np.clip(columns + column, 0, u.shape[1] - 1))
        np.add.at(du, at, k * dout)
    return du


def rotation(q):
    """Warp's quat_rotate as a matrix for each of the quaternions, of any length."""
    x, y, z, w = np.moveaxis(q, -1, 0)
    return np.stack([np.stack([2 * w * w - 1 + 2 * x * x, 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
                     np.stack([2 * (x * y + w * z), 2 * w * w - 1 + 2 * y * y, 2 * (y * z - w * x)], -1),
                     np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 2 * w * w - 1 + 2 * z * z], -1)], -2)


def push(x):
    return np.stack([np.sin(x[:, 0]), np.ones(len(x)), np.zeros(len(x))], -1)


def acceleration(x, v, q, gravity):
    turned = np.einsum("nij,nj->ni", rotation(q), push(x))
    return np.asarray(gravity) + turned - 0.1 * np.sum(v * v, -1, keepdims=True) * v


def integrate(x, v, q, *, dt=0.01, gravity=GRAVITY):
    a = acceleration(x, v, q, gravity)
    return x + dt * v + 0.5 * dt * dt * a, v + dt * a


def integrate_backward(x, v, q, dx_new, dv_new, *, dt=0.01, gravity=GRAVITY):
    da = 0.5 * dt * dt * dx_new + dt * dv_new
    along = np.sum(v * da, -1, keepdims=True)
    dv = dv_new + dt * dx_new - 0.1 * (np.sum(v * v, -1, keepdims=True) * da + 2 * along * v)
    dpush = np.einsum("nij,ni->nj", rotation(q), da)
    dx = dx_new.copy()
    dx[:, 0] += dpush[:, 0] * np.cos(x[:, 0])
    dq = np.empty_like(q)
    for i in range(4):  # the matrix is a polynomial of degree 2 in q, so a central difference is its derivative
        step = np.zeros(4)
        step[i] = 0.5
        slope = rotation(q + step) - rotation(q - step)
        dq[:, i] = np.einsum("ni,nij,nj->n", da, slope, push(x))
    return dx, dv, dq


def energy(v, m):
    return np.sum(0.5 * m * np.sum(v * v, -1)).reshape(1)


def energy_backward(v, m, dtotal):
    return dtotal[0] * m[:, None] * v, dtotal[0] * 0.5 * np.sum(v * v, -1)


def square(y):
    return y * y


def square_backward(y, dy_new):
    return 2 * y * dy_new


def turn(m, x):
    return np.einsum("abij,abj->abi", m, x)


def mix(x, w, *, shift=-3, negate=False):
    y = (x + shift) * w
    return -y if negate else y


def row_sums(x):
    return x.sum(-1)


def make_inputs(op, problem, seed):
    """Positive where differences would cancel, so that what is rounded is a result's last bits."""
    random = np.random.default_rng(seed)
    ranges = {"row_sums": {"x": (0.5, 2)}, "turn": {"m": (0.5, 2), "x": (0.5, 2)}, "react": {"u": (0.2, 0.6)},
              "react_backward": {"u": (0.2, 0.6), "dout": (0.5, 2)}}
    return {name: random.uniform(*between, problem[name]) for name, between in ranges.get(op, {}).items()}


def repeats(op, attributes, result):
    """Sums by atomics come in any order on a GPU: of energy, and of what flows from an element to its neighbours."""
    return op not in ("energy", "react_backward")
