"""Float64 references of the probe ops."""

import numpy as np


def shift(x, *, by=1):
    return x + by


def add_row(x, row):
    return x + row


def column_sum(x):
    return x.reshape(-1, x.shape[-1]).sum(axis=0)


def by_channel(x):
    return x * np.arange(1, len(x) + 1).reshape((-1,) + (1,) * (x.ndim - 1))


def add_all(x, w):
    return x + w.reshape(-1, w.shape[-1]).sum(axis=0)


def count_rows(x):
    sums = x.sum(axis=-1)
    return np.broadcast_to(sums[..., None], sums.shape + (sums.size,))


def unbatched(x):
    return x


def attributes(*, flag=False, count, mode="plain", list, number=0.5):
    return np.array([flag, count, ["plain", "causal"].index(mode), len(list), list[0], int(number * 1000)])


def cast(x, *, out_dtype):
    return x


def keep(x, mask=None):
    if mask is None:
        return x, None
    return np.where(mask != 0, x, 0), (np.asarray(mask) != 0).astype(np.int32)
