"""Grouped products in FP8 as a function of PyTorch: kbt.scaled_grouped_matmul, where kbt is kbundle.torch. It means what it means for JAX;
README.md beside this file says it.
"""

import torch

from kbundle.torch import call
from kbundle.torch._dtypes import int32
from kbundle_kernels.pytorch.grouped import check_shapes, empty

__all__ = ["scaled_grouped_matmul"]

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_BLOCK = 128


def scaled_grouped_matmul(lhs, rhs, group_sizes, lhs_scale_inv, rhs_scale_inv, *, scales="rows", out_dtype=torch.bfloat16, bias=None):
    """Rows of lhs[M, K] times the matrix of their group, rhs[g] being [N, K], both codes of FP8 that stand for code * scale_inv. Returns
    [M, N], bfloat16 or float32.

    lhs is float8_e4m3fn or float8_e5m2, rhs float8_e4m3fn. Scales are float32. Those of lhs, by `scales`: "rows", [M, ceil(K / 128)], as
    quantize_blocks gives them; "columns", [ceil(K / 128), M rounded up to 4], as it does with scales="columns". Those of rhs are then
    [G, ceil(N / 128), ceil(K / 128)], of tiles of 128 x 128. "tensor": one number for lhs, and one, or one for each group, for rhs.

    group_sizes and bias[G, N] are those of grouped_matmul. There is no gradient: codes have none."""
    where = "scaled_grouped_matmul"
    if lhs.dtype not in _FP8 or rhs.dtype != torch.float8_e4m3fn:
        raise TypeError("%s: lhs is %s and rhs %s; lhs must be float8_e4m3fn or float8_e5m2, and rhs float8_e4m3fn: quantize_blocks makes them"
                        % (where, lhs.dtype, rhs.dtype))
    check_shapes(where, lhs, rhs, group_sizes, True)
    if scales not in ("rows", "columns", "tensor"):
        raise ValueError("%s: scales is %r; it must be 'rows', 'columns' or 'tensor'" % (where, scales))
    if out_dtype not in (torch.bfloat16, torch.float32):
        raise ValueError("%s: out_dtype is %s; it must be torch.bfloat16 or torch.float32" % (where, out_dtype))
    (rows, depth), (groups, width) = lhs.shape, rhs.shape[:2]
    of_lhs, of_rhs = (torch.as_tensor(one, dtype=torch.float32, device=lhs.device) for one in (lhs_scale_inv, rhs_scale_inv))
    if scales == "tensor":
        of_lhs = _shaped(where, "lhs_scale_inv", of_lhs.reshape(-1), (1,)).reshape(1, 1)
        of_rhs = of_rhs.reshape(-1) if of_rhs.numel() != 1 else of_rhs.reshape(1).expand(groups)
        of_rhs = _shaped(where, "rhs_scale_inv", of_rhs, (groups,)).reshape(groups, 1, 1)
    else:
        parts = -(-depth // _BLOCK)
        _shaped(where, "lhs_scale_inv", of_lhs, (rows, parts) if scales == "rows" else (parts, -(-rows // 4) * 4))
        _shaped(where, "rhs_scale_inv", of_rhs, (groups, -(-width // _BLOCK), parts))
    if bias is not None:
        bias = _shaped(where, "bias", bias, (groups, width)).to(out_dtype)
    sizes = int32(group_sizes)
    if 0 in lhs.shape or 0 in rhs.shape:
        return empty(lhs.to(out_dtype), rhs.to(out_dtype), sizes, bias, width, out_dtype)
    return call(None, "grouped.scaled_matmul", lhs, rhs, of_lhs, of_rhs, sizes, bias, out_dtype=out_dtype, scales=scales)


def _shaped(where, name, tensor, shape):
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError("%s: %s has shape %s; it must be %s" % (where, name, tuple(tensor.shape), tuple(shape)))
    return tensor
