import numpy as np


def scale(x, *, factor, K):
    return {"y": factor * np.asarray(x, np.float64)[:, :K]}


def total(x):
    return {"y": np.asarray(x, np.float64).sum(keepdims=True)}
