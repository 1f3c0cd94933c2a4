"""Float64 references of the Triton ops."""

import numpy as np


def add(x, y, *, scale=1.0, magnitude=False):
    value = x + np.float32(scale) * y
    return np.abs(value) if magnitude else value


def normalize(x, gain=None, *, out_dtype):
    apart = x - x.mean(axis=-1, keepdims=True)
    value = apart / np.sqrt((apart * apart).mean(axis=-1, keepdims=True) + 1e-5)
    return value if gain is None else value * gain


def total(x):
    return np.sum(x, keepdims=True)
