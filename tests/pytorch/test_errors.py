"""Promise: a call of kbundle.torch that cannot be is an error that names the op and the argument, found and allowed."""

import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
X = torch.ones(4, 8)


@pytest.mark.parametrize("words, call", [
    ("did you mean 'softmax.scaled_forward'", lambda b: kbt.call(b, "softmax.scaled_forwrd", X)),
    ("no attribute 'scal'; there are scale", lambda b: kbt.call(b, "softmax.scaled_forward", X, scal=1.0)),
    ("dtype f64, T is one of f32, f16, bf16", lambda b: kbt.call(b, "softmax.scaled_forward", X.double())),
    ("operand 0 is torch.complex64, which no op takes", lambda b: kbt.call(b, "softmax.scaled_forward", X.to(torch.complex64))),
    ("operand 1 is on meta, those before it are on cpu", lambda b: kbt.call(b, "softmax.scaled_backward", X, X.to("meta"))),
    ("no operand is a tensor", lambda b: kbt.call(b, "softmax.scaled_forward", None)),
    ("no operand is a tensor", lambda b: kbt.call(b, "softmax.scaled_forward")),
    ("an operand is a .*list", lambda b: kbt.call(b, "softmax.scaled_forward", [1.0])),
    ("3 operands are given; it has 1: x", lambda b: kbt.call(b, "softmax.scaled_forward", X, X, X)),
    ("attribute 'scale' is a tensor", lambda b: kbt.call(b, "softmax.scaled_forward", X, scale=torch.ones(()))),
    ("is no bundle", lambda b: kbt.call("kernels.kb", "softmax.scaled_forward", X)),
    ("it must be a number from 0 to 1", lambda b: kbt.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=2.0)),
    ("query and key have as many heads", lambda b: kbt.scaled_dot_product_attention(*[torch.ones(h, 3, 8) for h in (4, 2, 2)])),
    ("needs to broadcast to", lambda b: kbt.scaled_dot_product_attention(*[torch.ones(2, 3, 8)] * 3, attn_mask=torch.ones(5, 7))),
    (r"local_window_size is \(-1, 3\); it must be one number of keys or two", lambda b: kbt.scaled_dot_product_attention(
        *[torch.ones(2, 3, 8)] * 3, local_window_size=(-1, 3))),
    ("the bundle has .*softcap", lambda b: kbt.scaled_dot_product_attention(*[torch.ones(2, 3, 8)] * 3, score_mod="soft")),
    ("gamma has shape \\(7,\\)", lambda b: kbt.rms_norm(X, torch.ones(7))),
    ("residual is torch.float32\\[4, 7\\]", lambda b: kbt.layer_norm(X, torch.ones(8), residual=X[:, :7])),
    ("needs at least the axes Q and K", lambda b: kbt.scaled_masked_softmax(X[0], X[0] > 0)),
])
def test_what_is_wrong_is_said(kernels, words, call):
    with pytest.raises((kbundle.Error, ValueError), match=words):
        call(kernels)


def test_wrong_types_are_refused_by_torchs_own_schema(kernels):
    with pytest.raises(RuntimeError, match="scale"):
        kbt.call(kernels, "softmax.scaled_forward", X, scale="a")


def test_what_has_no_gradient_says_so(kernels):
    x = torch.ones(4, 8, requires_grad=True)
    amax = kbt.call(kernels, "quantize.amax", x)
    with pytest.raises(kbundle.Error, match="differentiating op 'quantize.amax'.*register_derivative"):
        amax.sum().backward()
    with pytest.raises(kbundle.Error, match="is none; give a kbundle.torch.Derivative"):
        kbt.register_derivative("softmax.scaled_forward", "softmax.scaled_backward")


@pytest.mark.parametrize("words, made", [
    ("operand 0 is of layout torch.sparse_coo; .*to_dense", lambda: X.to_sparse()),
    ("operand 0 is of layout torch.sparse_csr", lambda: X.to_sparse_csr()),
    ("operand 0 is of layout torch._mkldnn", lambda: X.to_mkldnn()),
    ("operand 0 is nested; .*pad it", lambda: torch.nested.nested_tensor([X, X[:3]])),
    ("operand 0 is nested", lambda: torch.nested.nested_tensor([X, X[:3]], layout=torch.jagged)),
    ("operand 0 is quantized; .*make floats of it", lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)),
])
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_not_plain_are_refused_by_name_and_nothing_is_printed(kernels, capfd, words, made):
    try:
        x = made()
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"this PyTorch makes no such tensor: {error}")
    kbt.scaled_softmax(X)  # known from here on: the short way must not look at sizes that are not there
    for turn in range(2):
        with pytest.raises(kbundle.Error, match=words):
            kbt.scaled_softmax(x)
    assert capfd.readouterr().err == ""


def test_a_derivative_whose_names_do_not_fit_says_which(probe):
    kbt.register_derivative("probe.shift", kbt.Derivative("probe.add_row"))
    y = None
    with pytest.raises(kbundle.Error, match="its operand 'row' is to come from 'row'; there are"):
        y = kbt.call(probe, "probe.shift", torch.ones(3, 5, requires_grad=True))
    assert y is None


def test_gradients_of_gradients_say_what_they_cannot(kernels):
    x = torch.ones(4, 8, requires_grad=True)
    [gradient] = torch.autograd.grad((kbt.scaled_softmax(x) ** 2).sum(), x, create_graph=True)
    with pytest.raises(kbundle.Error, match="differentiating op 'softmax.scaled_backward'"):
        gradient.sum().backward()


def test_a_tensor_of_a_score_modifier_has_no_gradient(kernels):
    q = torch.ones(1, 2, 3, 8)
    with pytest.raises(kbundle.Error, match="is not computed; detach it"):
        kbt.scaled_dot_product_attention(q, q, q, score_mod="alibi", slope=torch.ones(2, requires_grad=True))


def test_kbundle_itself_imports_no_torch_and_kbundle_torch_says_what_it_lacks():
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "ffi/python"), os.environ.get("PYTHONPATH", "")]))

    def run(program):
        return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    done = run("import sys, kbundle; assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr
    done = run("import sys; sys.modules['torch'] = None\nimport kbundle.torch")
    assert done.returncode == 1 and "kbundle.torch needs PyTorch" in done.stderr
