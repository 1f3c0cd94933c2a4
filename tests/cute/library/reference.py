import numpy as np


def scale(x, *, factor=1.0, K):
    return factor * np.asarray(x, np.float64)[:, :K]


def total(x):
    return np.asarray(x, np.float64).sum(keepdims=True)
