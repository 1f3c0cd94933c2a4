"""Products of groups of rows as a function of PyTorch, with gradients: kbt.grouped_matmul, where kbt is kbundle.torch. It means what it means
for JAX; README.md beside this file says it, for any values in its sizes.

Gradients are grouped products as well. One that arrives in a wider dtype than the operands have is rounded to theirs first.
"""

import torch

from kbundle.torch import DerivativeFunction, call
from kbundle.torch._dtypes import int32

__all__ = ["grouped_matmul"]

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def grouped_matmul(lhs, rhs, group_sizes, *, out_dtype=None, bias=None, transpose_rhs=False):
    """Rows of lhs[M, K] times the matrix of their group in rhs[G, K, N]: of the first group_sizes[0] rows that is rhs[0], and so on. Returns
    [M, N].

    group_sizes[G], integers, lie on the device: they may be computed. Rows past their sum are 0 and have no gradient. Sizes that are wrong
    do no harm: a negative one counts as 0, and rows end with M. lhs and rhs are bfloat16, float16 or float32, of one dtype after torch's
    promotion; sums are float32. out_dtype is that of the operands, the default, or float32.

    bias[G, N], if given, is added to its group's rows. transpose_rhs: rhs is [G, N, K], and is read as it lies. Gradients flow to lhs, rhs
    and bias."""
    dtype = torch.promote_types(lhs.dtype, rhs.dtype)
    if dtype not in _DTYPES:
        raise TypeError("grouped_matmul: lhs is %s and rhs %s; both must be bfloat16, float16 or float32; convert them with .to"
                        % (lhs.dtype, rhs.dtype))
    check_shapes("grouped_matmul", lhs, rhs, group_sizes, transpose_rhs)
    out_dtype = out_dtype or dtype
    if out_dtype not in (dtype, torch.float32):
        raise ValueError("grouped_matmul: out_dtype is %s; it must be None, the operands' %s, or torch.float32" % (out_dtype, dtype))
    width = rhs.shape[1 if transpose_rhs else 2]
    if bias is not None:
        if bias.shape != (rhs.shape[0], width):
            raise ValueError("grouped_matmul: bias has shape %s; for rhs of shape %s it must be %s"
                             % (tuple(bias.shape), tuple(rhs.shape), (rhs.shape[0], width)))
        bias = bias.to(out_dtype)
    sizes = int32(group_sizes)
    if 0 in lhs.shape or 0 in rhs.shape:
        return empty(lhs, rhs, sizes, bias, width, out_dtype)
    return call(None, "grouped.matmul", lhs.to(dtype), rhs.to(dtype), sizes, bias, out_dtype=out_dtype, trans_w=bool(transpose_rhs))


def check_shapes(where, lhs, rhs, sizes, transpose):
    if lhs.dim() != 2 or rhs.dim() != 3 or lhs.shape[1] != rhs.shape[2 if transpose else 1]:
        raise ValueError("%s: lhs has shape %s and rhs %s; they must be [M, K] and %s"
                         % (where, tuple(lhs.shape), tuple(rhs.shape), "[G, N, K]" if transpose else "[G, K, N]"))
    if sizes.shape != rhs.shape[:1] or sizes.dtype not in (torch.int32, torch.int64):
        raise ValueError("%s: group_sizes is %s%s; for rhs of shape %s it needs to be int32[%d]"
                         % (where, sizes.dtype, list(sizes.shape), tuple(rhs.shape), rhs.shape[0]))


def empty(lhs, rhs, sizes, bias, width, out_dtype):
    """A product without rows, without columns, or over nothing: then only the bias of each row's group is left of it. Gradients are 0."""
    rows, groups = lhs.shape[0], rhs.shape[0]
    y = torch.zeros(rows, width, dtype=out_dtype, device=lhs.device)
    for given in (lhs, rhs, bias):
        y = y if given is None else y + given[:0].sum().to(out_dtype)
    if bias is None or groups == 0:
        return y
    ends = sizes.long().clamp(0, rows).cumsum(0).clamp(max=rows)
    group = torch.searchsorted(ends, torch.arange(rows, device=lhs.device), right=True)
    return y + bias[group.clamp(max=groups - 1)] * (group < groups)[:, None]


def _keeps(flow):
    kept = ("x", "w" in flow.wanted), ("w", "x" in flow.wanted), ("sizes", True)
    return [name for name, needed in kept if needed]


def _gradients(flow):
    dy, sizes, made = flow["dy"], flow["sizes"], {}
    trans_w = flow.attributes["trans_w"]
    if "x" in flow.wanted:
        w = flow["w"]
        made["x"] = flow.call("grouped.matmul", dy.to(w.dtype), w, sizes, out_dtype=w.dtype, trans_w=not trans_w)
    if "w" in flow.wanted:
        x = flow["x"]
        operands = (dy.to(x.dtype), x) if trans_w else (x, dy.to(x.dtype))
        made["w"] = flow.call("grouped.weight_gradient", *operands, sizes, out_dtype=x.dtype)
    if "bias" in flow.wanted:
        made["bias"] = flow.call("grouped.sum_rows", dy, sizes)
    return made


DERIVATIVES = {"grouped.matmul": DerivativeFunction(_gradients, _keeps, through=("y",))}
