"""Dtypes of tensors by kbundle's names."""

import torch

from kbundle._dtypes import LONG_NAMES

TORCH = {name: getattr(torch, long) for name, long in LONG_NAMES.items() if hasattr(torch, long)}
NAMES = {dtype: name for name, dtype in TORCH.items()}
