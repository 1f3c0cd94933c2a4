"""Dtypes of tensors by kbundle's names."""

import torch

from kbundle._dtypes import LONG_NAMES

TORCH = {name: getattr(torch, long) for name, long in LONG_NAMES.items() if hasattr(torch, long)}
NAMES = {dtype: name for name, dtype in TORCH.items()}


def int32(values):
    """Integers of any dtype as int32. What that has no room for becomes the nearest number that it has: a size, length or index that is
    beyond all bounds stays so, where its low bits could be one that is not."""
    if values.dtype in (torch.uint32, torch.uint64):
        values = values.to(torch.int64)  # of 2**63 and more a negative number, which is beyond all bounds too
    if values.dtype == torch.int64:
        values = values.clamp(-2**31, 2**31 - 1)
    return values.to(torch.int32)
