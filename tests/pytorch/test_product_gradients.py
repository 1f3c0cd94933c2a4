"""Promise: products, layers, grouped products and cross entropy for PyTorch mean what the formula says in float64, and so do their gradients,
whatever is left out, however operands lie."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

from pytorch.formulas import check, drawn  # noqa: E402

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402

F = torch.nn.functional
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
pytestmark = pytest.mark.usefixtures("kernels")


@pytest.fixture(autouse=True)
def exact():
    """No float32 is rounded to TF32."""
    assert torch.get_float32_matmul_precision() == "highest"


# ---- products ----

@DTYPES
@pytest.mark.parametrize("shapes", [((5, 7), (7, 3)), ((2, 5, 7), (7, 3)), ((2, 3, 5, 8), (3, 8, 4)), ((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,)),
                                    ((0, 7), (7, 3)), ((5, 0), (0, 3)), ((2, 1, 16), (16, 16))], ids=str)
def test_matmul(device, dtype, shapes):
    check(kbt.matmul, torch.matmul, drawn(device, dtype, *shapes), times=3)


@pytest.mark.parametrize("trans_a", [False, True], ids=["a", "a turned"])
@pytest.mark.parametrize("trans_b", [False, True], ids=["b", "b turned"])
@pytest.mark.parametrize("lead", [(), (3,)], ids=["matrices", "batches"])
def test_matmul_of_turned_operands(device, trans_a, trans_b, lead):
    a, b = drawn(device, torch.float32, (*lead, 5, 7), (*lead, 7, 3))
    a, b = a.mT.contiguous() if trans_a else a, b.mT.contiguous() if trans_b else b
    check(functools.partial(kbt.matmul, trans_a=trans_a, trans_b=trans_b, alpha=0.5),
          lambda a, b: 0.5 * ((a.mT if trans_a else a) @ (b.mT if trans_b else b)), [a, b])


def test_views_are_multiplied_as_they_lie_or_copied(device):
    a, b = drawn(device, torch.float32, (7, 5), (3, 7))
    check(lambda a, b: kbt.matmul(a.t(), b.t()), lambda a, b: a.t() @ b.t(), [a, b])
    check(lambda a, b: kbt.matmul(a[::2], b[:, ::2].t()[:, ::2]), lambda a, b: a[::2] @ b[:, ::2].t()[:, ::2],
          drawn(device, torch.float32, (7, 4), (5, 8)))


def test_a_wider_result_and_operands_of_two_dtypes(device):
    a, b = drawn(device, torch.bfloat16, (5, 16), (16, 8))
    y = kbt.matmul(a, b.float())
    assert y.dtype == torch.float32
    check(functools.partial(kbt.matmul, out_dtype=torch.float32), torch.matmul, [a, b], times=2)
    torch.testing.assert_close(kbt.matmul(a, b, out_dtype=torch.float16), (a.float() @ b.float()).half())


def test_gradients_of_gradients_are_products_too(device):
    a, b = [x.requires_grad_() for x in drawn(device, torch.float32, (5, 7), (7, 3))]
    both = []
    for product in (kbt.matmul, torch.matmul):
        [da] = torch.autograd.grad((product(a, b) ** 2).sum(), [a], create_graph=True)
        both.append(torch.autograd.grad((da ** 2).sum(), [a, b]))
    for found, wanted in zip(*both):
        torch.testing.assert_close(found, wanted)


def test_fp8_is_multiplied_and_has_no_gradient(device):
    a, b = (x.to(torch.float8_e4m3fn) for x in drawn(device, torch.float32, (16, 32), (16, 32)))
    y = kbt.matmul(a, b, trans_b=True, a_scale=0.5, b_scale=torch.tensor(2.0, device=device), out_dtype=torch.float32)
    torch.testing.assert_close(y, a.float() @ b.float().t(), rtol=1e-3, atol=1e-3)
    with pytest.raises(kbundle.Error, match="a gradient in FP8 would mean little"):
        kbt.matmul(a.requires_grad_(), b, trans_b=True).sum().backward()


def test_only_what_a_gradient_needs_is_kept(device):
    a, b = drawn(device, torch.float32, (4, 8), (8, 4))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()) or t, lambda t: t):
        kbt.matmul(a.requires_grad_(), b)
    assert a.data_ptr() not in kept and b.data_ptr() in kept


# ---- layers ----

@DTYPES
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("shapes", [((5, 7), (7, 3)), ((2, 3, 16), (16, 24)), ((0, 8), (8, 8))], ids=str)
def test_dense(device, dtype, activation, bias, shapes):
    given = drawn(device, dtype, *shapes, *[shapes[1][1:]] * bias)
    apply = {None: lambda y: y, "relu": torch.relu, "gelu": functools.partial(F.gelu, approximate="tanh")}[activation]
    check(functools.partial(kbt.dense, activation=activation), lambda x, w, b=None: apply(x @ w if b is None else x @ w + b), given, times=3)


@DTYPES
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu", "geglu", "reglu"])
def test_mlp(device, dtype, activation):
    gates = {"swiglu": F.silu, "geglu": functools.partial(F.gelu, approximate="tanh"), "reglu": torch.relu}
    plain = {"relu": torch.relu, "gelu": gates["geglu"]}
    wide = 2 if activation in gates else 1

    def formula(x, w1, b1, w2, b2):
        hidden = x @ w1 + b1
        if activation in gates:
            first, second = hidden.chunk(2, -1)
            return gates[activation](first) * second @ w2 + b2
        return plain[activation](hidden) @ w2 + b2
    x, w1, b1, w2, b2 = drawn(device, dtype, (3, 5, 8), (8, 12 * wide), (12 * wide,), (12, 7), (7,))
    check(functools.partial(kbt.mlp, activation=activation), formula, [x, w1 / 3, b1, w2 / 3, b2], times=4)
    without = kbt.mlp(x, w1, None, w2, None, activation)
    assert without.shape == (3, 5, 7) and without.dtype == dtype


def test_a_weight_that_lies_turned_is_not_copied_and_has_its_gradient(device):
    x, w = drawn(device, torch.float32, (5, 7), (3, 7))
    check(lambda x, w: kbt.dense(x, w.t()), lambda x, w: x @ w.t(), [x, w])


# ---- grouped products ----

def grouped(x, w, bias, sizes, transposed):
    ends = torch.tensor(sizes).clamp(min=0).cumsum(0).clamp(max=len(x)).tolist()
    rows, begin = [], 0
    for group, end in enumerate(ends):
        some = x[begin:end] @ (w[group].mT if transposed else w[group])
        rows.append(some if bias is None else some + bias[group])
        begin = end
    return torch.cat([*rows, (x[begin:].sum(1, keepdim=True) * 0).expand(-1, w.shape[1 if transposed else 2])])


@DTYPES
@pytest.mark.parametrize("transposed", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("sizes", [(3, 0, 5), (1, 2, 3), (20, 1, 1), (-4, 2, 0)], ids=str)
def test_grouped_products(device, dtype, transposed, bias, sizes):
    x, w, *rest = drawn(device, dtype, (9, 8), (3, 5, 8) if transposed else (3, 8, 5), *[(3, 5)] * bias)
    check(lambda x, w, b=None: kbt.grouped_matmul(x, w, torch.tensor(sizes, device=device), bias=b, transpose_rhs=transposed),
          lambda x, w, b=None: grouped(x, w, b, sizes, transposed), [x, w, *rest], times=3)


@pytest.mark.parametrize("shapes", [((0, 8), (3, 8, 5)), ((4, 0), (3, 0, 5)), ((4, 8), (3, 8, 0)), ((4, 8), (0, 8, 5))], ids=str)
def test_grouped_products_of_nothing(device, shapes):
    groups, _, width = shapes[1]
    sizes = (1, 2, 0)[:groups]
    check(lambda x, w, b: kbt.grouped_matmul(x, w, torch.tensor(sizes, dtype=torch.int32, device=device), bias=b),
          lambda x, w, b: grouped(x, w, b, sizes, False) + 0 * (w.sum() + b.sum()), drawn(device, torch.float32, *shapes, (groups, width)))


def test_grouped_products_in_fp8_are_those_of_what_codes_stand_for(device):
    x, w = drawn(device, torch.float32, (12, 256), (2 * 128, 256))
    sizes = torch.tensor((5, 7), device=device)
    (q, s), (qw, sw) = kbt.quantize_blocks(x), kbt.quantize_blocks(w, block=(128, 128))
    y = kbt.scaled_grouped_matmul(q, qw.reshape(2, 128, 256), sizes, s, sw.reshape(2, 1, 2), out_dtype=torch.float32)
    wide, wide_w = q.double() * s.repeat_interleave(128, 1), qw.double() * sw.repeat_interleave(128, 0).repeat_interleave(128, 1)
    wanted = grouped(wide, wide_w.reshape(2, 128, 256), None, (5, 7), True)
    # The op allows 1e-3 of a row's largest number (scaled.toml): tensor cores of Hopper add 32 products of FP8 at a time, aligned to the
    # largest of them, of which they keep some 14 bits. CPUs, and the kernel for other GPUs, add in float32.
    allowed = {"cpu": 1e-6, "cuda": 1e-3}[device.type] * wanted.abs().amax(-1, keepdim=True)
    assert ((y.double() - wanted).abs() <= allowed).all(), ((y.double() - wanted).abs() / allowed).max()


# ---- cross entropy ----

@DTYPES
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing, z_loss", [(0.0, 0.0), (0.1, 0.01)])
@pytest.mark.parametrize("shape", [(7, 33), (2, 3, 5)], ids=str)
def test_cross_entropy(device, dtype, reduction, smoothing, z_loss, shape):
    labels = torch.randint(0, shape[-1], shape[:-1], generator=torch.Generator().manual_seed(2)).to(device)
    labels.view(-1)[1] = -100
    more = dict(label_smoothing=smoothing, reduction=reduction)

    def formula(logits):
        flat, kept = logits.flatten(0, -2), (labels != -100).flatten()
        losses = F.cross_entropy(flat, labels.flatten(), label_smoothing=smoothing, reduction="none") + z_loss * flat.logsumexp(-1) ** 2 * kept
        return {"mean": losses.sum() / kept.sum(), "sum": losses.sum(), "none": losses.reshape(labels.shape)}[reduction]
    [logits] = drawn(device, dtype, shape)
    check(functools.partial(kbt.cross_entropy, labels=labels, z_loss=z_loss, **more), formula, [logits], times=2)
    loss, gradient = kbt.cross_entropy_with_gradient(logits, labels, z_loss=z_loss, **more)
    wide = logits.double().requires_grad_()
    wanted = formula(wide)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), torch.autograd.grad(wanted.sum(), wide)[0], rtol=0, atol=2e-2 if dtype != torch.float32 else 1e-5)


def test_labels_that_are_none_make_nan_and_those_that_are_all_ignored_nothing(device):
    [logits] = drawn(device, torch.float32, (3, 5))
    for label in (5, -1, 2**33 + 1, -2**40):
        losses = kbt.cross_entropy(logits, torch.tensor([0, label, 1], device=device), reduction="none")
        assert losses.isnan().tolist() == [False, True, False]
    assert float(kbt.cross_entropy(logits, torch.full((3,), -100, device=device))) == 0


@DTYPES
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("last", [False, True], ids=["[V, D]", "[D, V]"])
@pytest.mark.parametrize("rows", [None, 4, 1])
def test_cross_entropy_of_a_linear_layer(device, dtype, reduction, last, rows):
    hidden, weight = drawn(device, dtype, (3, 3, 16), (16, 24) if last else (24, 16))
    labels = torch.randint(0, 24, (3, 3), generator=torch.Generator().manual_seed(2)).to(device)
    labels[1, 1] = -100

    def formula(hidden, weight):
        losses = F.cross_entropy((hidden @ (weight if last else weight.t())).flatten(0, 1), labels.flatten(), reduction=reduction)
        return losses.reshape(labels.shape) if reduction == "none" else losses
    check(functools.partial(kbt.linear_cross_entropy, labels=labels, reduction=reduction, vocabulary_last=last, chunk_rows=rows), formula,
          [hidden, weight], times=4)


@pytest.mark.parametrize("last", [False, True], ids=["[V, D]", "[D, V]"])
@pytest.mark.parametrize("rows", [None, 256])
def test_a_vocabulary_whose_rows_are_not_aligned(device, last, rows):
    """Columns that are added behind it weigh nothing, and are nobody's label."""
    hidden, weight = drawn(device, torch.float32, (300, 16), (16, 301) if last else (301, 16))
    labels = torch.randint(0, 301, (300,), generator=torch.Generator().manual_seed(2)).to(device)
    labels[::9] = 305
    how = dict(vocabulary_last=last, chunk_rows=rows, ignore_index=305)
    formula = lambda h, w: F.cross_entropy(h @ (w if last else w.t()), labels, ignore_index=305)
    check(functools.partial(kbt.linear_cross_entropy, labels=labels, **how), formula, [hidden, weight], times=4)
    for label in (301, 319, -1):
        wrong = labels.clone()
        wrong[3] = label
        losses = kbt.linear_cross_entropy(hidden, weight, wrong, reduction="none", **how)
        assert losses.isnan().nonzero().tolist() == [[3]]


def test_a_linear_layers_cross_entropy_without_rows(device):
    hidden, weight = [x.requires_grad_() for x in drawn(device, torch.float32, (0, 8), (5, 8))]
    loss = kbt.linear_cross_entropy(hidden, weight, torch.zeros(0, dtype=torch.int64, device=device))
    assert float(loss) == 0 and not torch.autograd.grad(loss, weight)[0].any()


# ---- what is wrong ----

X, LABELS, SIZES = torch.ones(4, 8), torch.zeros(4, dtype=torch.int64), torch.tensor([2, 2])


@pytest.mark.parametrize("words, call", [
    ("labels have shape", lambda: kbt.cross_entropy(X, LABELS[:3])),
    ("they must be integers", lambda: kbt.cross_entropy(X, X[:, 0])),
    ("reduction is 'avg'", lambda: kbt.cross_entropy(X, LABELS, reduction="avg")),
    ("a number from 0 to 1", lambda: kbt.cross_entropy(X, LABELS, label_smoothing=2.0)),
    ("T is one of f32, f16, bf16", lambda: kbt.cross_entropy(X.double(), LABELS)),
    ("dloss has shape", lambda: kbt.cross_entropy_with_gradient(X, LABELS, X[:, 0])),
    (r"they must be \[.., D\] and \[D, V\]", lambda: kbt.linear_cross_entropy(X, torch.ones(5, 8), LABELS, vocabulary_last=True)),
    ("chunk_rows is 0", lambda: kbt.linear_cross_entropy(X, torch.ones(5, 8), LABELS, chunk_rows=0)),
    ("accumulate is", lambda: kbt.linear_cross_entropy(X, torch.ones(5, 8), LABELS, accumulate=torch.float16)),
    ("they must be equally many", lambda: kbt.matmul(X, X)),
    ("a scalar is no matrix", lambda: kbt.matmul(X[0, 0], X)),
    ("convert them with .to", lambda: kbt.matmul(X.int(), X.t().int())),
    ("out_dtype is 'f32'", lambda: kbt.matmul(X, X.t(), out_dtype="f32")),
    ("precision is 'high'", lambda: kbt.matmul(X, X.t(), precision="high")),
    ("scales are for FP8", lambda: kbt.matmul(X, X.t(), a_scale=1.0)),
    ("they need to broadcast", lambda: kbt.matmul(torch.ones(2, 4, 8), torch.ones(3, 8, 4))),
    ("activation is 'tanh'", lambda: kbt.dense(X, X.t(), None, "tanh")),
    ("the bias has shape", lambda: kbt.dense(X, X.t(), torch.ones(5))),
    ("it must have two halves", lambda: kbt.mlp(X, torch.ones(8, 5), None, X, None, "swiglu")),
    ("group_sizes is torch.int64", lambda: kbt.grouped_matmul(X, torch.ones(3, 8, 3), SIZES)),
    ("bias has shape", lambda: kbt.grouped_matmul(X, torch.ones(2, 8, 3), SIZES, bias=torch.ones(3))),
    ("quantize_blocks makes them", lambda: kbt.scaled_grouped_matmul(X, torch.ones(2, 3, 8), SIZES, 1.0, 1.0, scales="tensor")),
])
def test_what_is_wrong_is_said(words, call):
    with pytest.raises((kbundle.Error, ValueError, TypeError), match=words):
        call()


def test_a_gelu_without_what_its_gradient_needs_says_how_to_keep_it():
    y = kbt.call(None, "matmul.matmul", X.clone().requires_grad_(), X.t(), out_dtype=torch.float32, epilogue="gelu")[0]
    with pytest.raises(kbundle.Error, match="call it with with_aux=True"):
        y.sum().backward()
