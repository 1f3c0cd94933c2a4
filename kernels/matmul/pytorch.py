"""Matrix products as functions of PyTorch, with gradients: kbt.matmul, kbt.dense, kbt.mlp, where kbt is kbundle.torch. They run the op
matmul.matmul and mean what they mean for JAX; README.md beside this file says it.

Gradients are products as well. One that arrives in a wider dtype than the operands have is rounded to theirs first.
"""

import torch

from kbundle import Error
from kbundle.torch import DerivativeFunction, call, shortcut

__all__ = ["dense", "matmul", "mlp"]

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_GATES = {"swiglu": torch.nn.functional.silu, "geglu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
          "reglu": torch.nn.functional.relu}


@shortcut(torch.get_float32_matmul_precision)
def matmul(a, b, *, trans_a=False, trans_b=False, out_dtype=None, alpha=1.0, precision=None, a_scale=None, b_scale=None,
           fast_accumulation=False):
    """alpha * op(a) @ op(b), where op swaps the last two axes if trans_a or trans_b says so. Shapes are those of torch.matmul: vectors,
    matrices, and leading dims that broadcast. A matrix that lies transposed in memory is read as it lies.

    Operands are bfloat16, float16 or float32, of one dtype after torch's promotion, or both FP8 (float8_e4m3fn, float8_e5m2, also mixed).
    Sums are float32. out_dtype is by default that of the operands, bfloat16 for FP8. precision matters for float32 on a GPU: "ieee" or
    "tf32"; by default what torch.get_float32_matmul_precision() says, "ieee" for "highest". FP8 operands are multiplied by the scalars
    a_scale and b_scale, tensors on the device; fast_accumulation lets sums of FP8 products be less exact. Gradients flow to a and b; FP8 has
    none."""
    a, b = _same_dtype("matmul", a, b)
    if not a.dim() or not b.dim() or (trans_a and a.dim() < 2) or (trans_b and b.dim() < 2):
        raise ValueError("matmul: the operands have shapes %s and %s; a scalar is no matrix, and a vector has no axes to swap"
                         % (tuple(a.shape), tuple(b.shape)))
    vectors = a.dim() == 1, b.dim() == 1
    a, b = a[None] if vectors[0] else a, b[:, None] if vectors[1] else b
    depth = a.shape[-2 if trans_a else -1], b.shape[-1 if trans_b else -2]
    if depth[0] != depth[1]:
        raise ValueError("matmul: op(a) has %d columns and op(b) %d rows, of shapes %s and %s; they must be equally many"
                         % (*depth, tuple(a.shape), tuple(b.shape)))
    out_dtype = out_dtype or (torch.bfloat16 if a.dtype in _FP8 else a.dtype)
    if out_dtype not in _DTYPES:
        raise ValueError("matmul: out_dtype is %r; it must be None, torch.bfloat16, torch.float16 or torch.float32" % (out_dtype,))
    # cuBLASLt rounds its sums to the operands' dtype or not at all.
    made = torch.float32 if a.dtype not in _FP8 and out_dtype != a.dtype else out_dtype
    how = {"out_dtype": made, "precision": precision_of("matmul", a, precision)}
    if alpha != 1.0:
        how["alpha"] = float(alpha)
    if fast_accumulation and a.dtype in _FP8:
        how["fast_accumulation"] = True
    scales = () if a_scale is None and b_scale is None else (None, None, None, None, _scale(a, a_scale), _scale(b, b_scale))
    d = _batched(a, b, trans_a, trans_b, how, scales)
    d = d if made == out_dtype else d.to(out_dtype)
    if vectors[0]:
        d = d.squeeze(-2)
    return d.squeeze(-1) if vectors[1] else d


@shortcut(torch.get_float32_matmul_precision)
def dense(x, w, bias=None, activation=None, *, precision=None):
    """activation(x[.., K] @ w[K, N] + bias[N]) with activation None, "relu" or "gelu" (the approximation with tanh), in one call. Gradients
    flow to x, w and bias. dtypes and precision are those of `matmul`."""
    (x, w), bias = _layer("dense", x, w, bias, activation, (None, "relu", "gelu"))
    return _dense(x, w, bias, activation, precision_of("dense", x, precision))


def mlp(x, w1, bias1, w2, bias2, activation="gelu", *, precision=None):
    """dense(dense(x, w1, bias1, activation), w2, bias2), where a bias may be None, and activation is "relu", "gelu", or gated: "swiglu",
    "geglu", "reglu". Then w1 is [K, 2 * F], bias1 [2 * F], w2 [F, N], and between them is f(the first F columns) * the others, in float32, f
    being silu, gelu (by tanh) or relu."""
    (x, w1), bias1 = _layer("mlp", x, w1, bias1, activation, ("relu", "gelu", *_GATES))
    precision, gated = precision_of("mlp", x, precision), activation in _GATES
    if gated and w1.shape[1] % 2:
        raise ValueError("mlp: w1 has shape %s; with activation %r it must have two halves, [K, 2 * F]" % (tuple(w1.shape), activation))
    hidden = _dense(x, w1, bias1, None if gated else activation, precision)
    if gated:
        hidden = _Gate.apply(hidden, activation)
    (hidden, w2), bias2 = _layer("mlp", hidden, w2, bias2, None, (None,))
    return _dense(hidden, w2, bias2, None, precision)


# ---- arguments ----

def _same_dtype(where, a, b):
    if (a.dtype == b.dtype and a.dtype in _DTYPES) or (a.dtype in _FP8 and b.dtype in _FP8):
        return a, b
    dtype = None if a.dtype in _FP8 or b.dtype in _FP8 else torch.promote_types(a.dtype, b.dtype)
    if dtype not in _DTYPES:
        raise TypeError("%s: the operands are %s and %s; both must be bfloat16, float16 or float32, or both FP8 (float8_e4m3fn, float8_e5m2); "
                        "convert them with .to" % (where, a.dtype, b.dtype))
    return a.to(dtype), b.to(dtype)


def precision_of(where, a, given):
    """The op's choice; where it makes no difference always the same one, so that equal products share a plan."""
    if given not in (None, "ieee", "tf32"):
        raise ValueError("%s: precision is %r; it must be 'ieee', 'tf32' or None" % (where, given))
    if a.dtype != torch.float32:
        return "tf32"
    return given or ("ieee" if _torchs_precision() == "highest" else "tf32")


@torch.compiler.assume_constant_result
def _torchs_precision():
    """A part of the program to torch.compile."""
    return torch.get_float32_matmul_precision()


def _scale(tensor, scale):
    if scale is None:
        return None
    if tensor.dtype not in _FP8:
        raise TypeError("matmul: a scale is given for an operand of dtype %s; scales are for FP8, use alpha" % tensor.dtype)
    scale = torch.as_tensor(scale, dtype=torch.float32, device=tensor.device)
    if scale.numel() != 1:
        raise ValueError("matmul: a scale has shape %s; it must be one number for all of the operand" % (tuple(scale.shape),))
    return scale.reshape(())


def _layer(where, x, w, bias, activation, allowed):
    """((x, w) of one dtype, bias of theirs), checked."""
    if activation not in allowed:
        raise ValueError("%s: activation is %r; it must be one of %s" % (where, activation, allowed))
    if x.dtype in _FP8 or w.dtype in _FP8:
        raise TypeError("%s: FP8 has no gradient; use kbt.matmul with a_scale and b_scale" % where)
    if w.dim() != 2 or x.dim() < 1 or x.shape[-1] != w.shape[0]:
        raise ValueError("%s: x of shape %s and w of shape %s do not fit; they must be [.., K] and [K, N]"
                         % (where, tuple(x.shape), tuple(w.shape)))
    if bias is not None and bias.shape != w.shape[1:]:
        raise ValueError("%s: the bias has shape %s; for w of shape %s it must be %s"
                         % (where, tuple(bias.shape), tuple(w.shape), tuple(w.shape[1:])))
    x, w = _same_dtype(where, x, w)
    return (x, w), bias if bias is None or bias.dtype == w.dtype else bias.to(w.dtype)


# ---- products ----

def _as_it_lies(matrix, trans):
    """A matrix and its flag, turned where it lies transposed, so that it is not copied."""
    if matrix.dim() == 2 and not matrix.is_contiguous() and matrix.t().is_contiguous():
        return matrix.t(), not trans
    return matrix, trans


def _batched(a, b, trans_a, trans_b, how, scales):
    """The product of operands with leading dims that broadcast. Where only a has some, they are rows."""
    if 0 in a.shape or 0 in b.shape:
        return torch.matmul(a.mT if trans_a else a, b.mT if trans_b else b).to(how["out_dtype"])
    lead = None
    if b.dim() == 2 and not trans_a:
        lead = a.shape[:-1] if a.dim() > 2 else None
        a = a if lead is None else a.reshape(-1, a.shape[-1])
    elif a.dim() > 2 or b.dim() > 2:
        try:
            batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except RuntimeError:
            raise ValueError("matmul: leading dims of shapes %s and %s; they need to broadcast" % (tuple(a.shape), tuple(b.shape))) from None
        a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    (a, trans_a), (b, trans_b) = _as_it_lies(a, trans_a), _as_it_lies(b, trans_b)
    if trans_a:
        how["trans_a"] = True
    if trans_b:
        how["trans_b"] = True
    d = call(None, "matmul.matmul", a, b, *scales, **how)[0]
    return d if lead is None else d.reshape(*lead, d.shape[-1])


def _dense(x, w, bias, activation, precision):
    if 0 in x.shape or 0 in w.shape:
        y = torch.matmul(x, w) if bias is None else torch.matmul(x, w) + bias
        return {None: lambda y: y, "relu": torch.relu, "gelu": _GATES["geglu"]}[activation](y)
    (w, trans_w), rows = _as_it_lies(w, False), x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    wanted = activation == "gelu" and torch.is_grad_enabled() and (
        any([one is not None and one.requires_grad for one in (x, w, bias)]) or torch._C._are_functorch_transforms_active())  # which hide it
    how = {"out_dtype": x.dtype, "precision": precision, "trans_b": trans_w}
    if activation is not None:
        how |= {"epilogue": activation, "with_aux": wanted}
    y = call(None, "matmul.matmul", rows, w, *(() if bias is None else (None, bias)), **how)[0]
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], y.shape[-1])


# ---- gradients ----

_OF_EPILOGUE = {"relu": ["d"], "gelu": ["aux_out"]}  # what their gradients need


def _keeps(flow):
    kept = ["a"] if "b" in flow.wanted else []
    if "a" in flow.wanted:
        kept.append("b")
    return kept + _OF_EPILOGUE.get(flow.attributes["epilogue"], [])


def _gradients(flow):
    """Of alpha * op(a) op(b) + beta * c + bias, and of an activation of it."""
    dz, made = _before_activation(flow), {}
    trans_a, trans_b = flow.attributes["trans_a"], flow.attributes["trans_b"]
    if "a" in flow.wanted:
        b = flow["b"]
        operands = (b, _as(dz, b)) if trans_a else (_as(dz, b), b)
        made["a"] = _product(flow, *operands, trans_a=trans_a and trans_b, trans_b=trans_a or not trans_b)
    if "b" in flow.wanted:
        a = flow["a"]
        operands = (_as(dz, a), a) if trans_b else (a, _as(dz, a))
        made["b"] = _product(flow, *operands, trans_a=trans_b or not trans_a, trans_b=trans_a and trans_b)
    if "bias" in flow.wanted:
        made["bias"] = (dz if dz.dim() == 2 else dz.flatten(0, -2)).sum(0)
    if "c" in flow.wanted:
        made["c"] = dz * flow.attributes["beta"]
    return made


def _as(dz, operand):
    return dz if dz.dtype == operand.dtype else dz.to(operand.dtype)


def _product(flow, left, right, **trans):
    if left.dtype in _FP8:
        raise Error("UNIMPLEMENTED", "differentiating op 'matmul.matmul' of FP8 operands: a gradient in FP8 would mean little; put the "
                    "quantization and the product into one torch.autograd.Function")
    return flow.call("matmul.matmul", left, right, out_dtype=left.dtype, alpha=flow.attributes["alpha"],
                     precision=flow.attributes["precision"], **trans)[0]


def _before_activation(flow):
    """What flows back through the epilogue: of d, and of aux_out, which is what came before a gelu, so that the gradient of a gradient
    has all of its parts."""
    dd, epilogue = flow["dd"], flow.attributes["epilogue"]
    if epilogue == "none":
        return dd
    if epilogue == "relu":
        return torch.ops.aten.threshold_backward(dd, flow["d"], 0)
    if epilogue == "gelu" and flow["aux_out"] is not None:
        dz = None if dd is None else torch.ops.aten.gelu_backward(dd, flow["aux_out"], approximate="tanh")
        before = flow["daux_out"]
        return dz if before is None else before if dz is None else dz + before
    raise Error("UNIMPLEMENTED", "differentiating op 'matmul.matmul' with epilogue=%r: %s" % (
        epilogue, "call it with with_aux=True, which keeps what the gradient needs" if epilogue == "gelu" else "it is a gradient itself"))


DERIVATIVES = {"matmul.matmul": DerivativeFunction(_gradients, _keeps, through=("d", "aux_out"))}


class _Gate(torch.autograd.Function):
    """f(first half) * second half of z[.., 2 * F], computed in float32, of which nothing but z waits for the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z, activation):
        first, second = z.float().chunk(2, -1)
        y = _GATES[activation](first) * second
        return y if y.dtype == z.dtype else y.to(z.dtype)  # of a .to that does nothing, torch.compile of 2.11 makes gradients of 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        z, ctx.activation = inputs
        ctx.save_for_backward(z)

    @staticmethod
    def backward(ctx, dy):
        [z] = ctx.saved_tensors
        dy, (first, second) = dy.float(), z.float().chunk(2, -1)
        value = _GATES[ctx.activation](first)
        return torch.cat([_slope(ctx.activation, dy * second, first), dy * value], -1).to(z.dtype), None


def _slope(activation, dy, x):
    """dy through the function of a gate at x."""
    if activation == "swiglu":
        if torch.is_grad_enabled():  # of the fused one torch has no derivative
            sigmoid = torch.sigmoid(x)
            return dy * (sigmoid * (1 + x * (1 - sigmoid)))
        return torch.ops.aten.silu_backward(dy, x)
    return torch.ops.aten.gelu_backward(dy, x, approximate="tanh") if activation == "geglu" else torch.where(x > 0, dy, 0)
