"""Promise: a call of an op's operator, by hand or by a compiled program, reaches the library's kernel with no Python between, and means what it
means to kbundle.torch: values, gradients, errors, and what wants to see calls sees them."""


import pytest
from at_once import at_once

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402
from kbundle.torch import _direct  # noqa: E402

X = torch.linspace(-2, 2, 33 * 4).reshape(4, 33)


def operator(bundle, op):
    kbt.register(bundle)
    packet = getattr(torch.ops.kbundle, op.replace(".", "_"))
    return getattr(packet, "i" + bundle.op(op).interface)


@pytest.fixture
def softmax(kernels):
    return operator(kernels, "softmax.scaled_forward")


@pytest.fixture
def seen(monkeypatch):
    """Calls that the kernel hands to Python."""
    names, real = [], _direct._Long.__call__

    def counted(self, *tensors, **attributes):
        names.append(self.kernel.op)
        return real(self, *tensors, **attributes)
    monkeypatch.setattr(_direct._Long, "__call__", counted)
    return names


def test_python_is_asked_once_for_each_problem(softmax, device, seen):
    assert _direct.enabled
    for turn in range(3):
        del seen[:]
        for shape in [(4, 33), (2, 7, 5)]:
            x = torch.randn(shape, device=device)
            for scale in (0.25, 3):
                for one in (x, x.transpose(0, 1)):
                    torch.testing.assert_close(softmax(one, scale=scale), torch.softmax(one * scale, -1))
    assert not seen


def test_no_frame_of_python_is_under_a_known_call(softmax):
    import sys
    softmax(X)
    names = []
    sys.setprofile(lambda frame, event, argument: names.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        softmax(X)
    finally:
        sys.setprofile(None)
    assert names and not [name for name in names if "kbundle" in name], names


def test_a_compiled_program_reaches_it_too(kernels, seen):
    torch.compiler.reset()
    compiled = torch.compile(lambda x, g: kbt.rms_norm(kbt.scaled_softmax(x * 2), g), fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    x, g = torch.randn(4, 33, requires_grad=True), torch.ones(33, requires_grad=True)
    for turn in range(3):
        del seen[:]
        found = torch.autograd.grad((compiled(x, g) ** 2).sum(), [x, g])
    assert not seen, "its forward and its backward part"
    wanted = torch.autograd.grad((torch.nn.functional.rms_norm(torch.softmax(x * 2, -1), (33,), g, 1e-6) ** 2).sum(), [x, g])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_gradients_flow_and_only_where_they_are_wanted(softmax, device):
    x = X.to(device)
    for turn in range(3):
        leaf = x.clone().requires_grad_()
        [found] = torch.autograd.grad((softmax(leaf, scale=0.5) ** 2).sum(), leaf)
        [wanted] = torch.autograd.grad((torch.softmax(leaf * 0.5, -1) ** 2).sum(), leaf)
        torch.testing.assert_close(found, wanted)
        assert softmax(leaf * 1).requires_grad and not softmax(x).requires_grad
        with torch.no_grad():
            assert not softmax(leaf).requires_grad
        with torch.inference_mode():
            assert softmax(leaf).is_inference()
    half = torch.zeros(2, 3, device=device)
    half[0] = leaf[0, :3] * 2  # a leaf that became part of a graph
    assert half.requires_grad and softmax(half).requires_grad


def test_operands_left_out_and_results_that_are_not_there(kernels, device, seen):
    norm = operator(kernels, "norm.layernorm_forward")
    x, residual, gamma = X.to(device), torch.randn(4, 33, device=device), torch.linspace(1, 2, 33, device=device)
    for turn in range(2):
        del seen[:]
        for given in ([x, gamma], [x, gamma, None, residual], [x, gamma, gamma]):
            found, wanted = norm(*given), kbt.call(kernels, "norm.layernorm_forward", *given)
            for one, other in zip(found, wanted):
                if other is None:
                    assert one.dim() == 17
                else:
                    torch.testing.assert_close(one, other)
    assert not seen


def test_attributes_of_every_kind_tell_problems_apart(probe, kernels):
    shift = operator(probe, "probe.shift")
    for turn in range(2):
        for by in (1, 2, -1, 1):
            assert torch.equal(shift(X, by=by, bundle=probe.name), X + by)
    assert torch.equal(torch.signbit(operator(kernels, "softmax.scaled_forward")(X, scale=-0.0)),
                       torch.signbit(torch.softmax(X * -0.0, -1)))
    sdpa, q = operator(kernels, "attention.sdpa_forward"), torch.randn(2, 5, 2, 8)
    for turn in range(2):
        for layout, swap in (("bshd", lambda t: t.transpose(1, 2)), ("bhsd", lambda t: t)):
            wanted = torch.nn.functional.scaled_dot_product_attention(*[swap(q)] * 3, scale=0.5)
            torch.testing.assert_close(swap(sdpa(q, q, q, scale=0.5, layout=layout)[0]), wanted, rtol=1e-4, atol=1e-5)


def test_what_fails_says_why_each_time_and_leaves_the_operator_as_it_was(softmax, device, capfd):
    x = X.to(device)
    for turn in range(3):
        with pytest.raises(RuntimeError, match=r"\[kbundle:INVALID_ARGUMENT\].*dtype f64, T is one of"):
            softmax(x.double())
        with pytest.raises(RuntimeError, match="no bundle 'nobody'|NOT_FOUND"):
            softmax(x, bundle="nobody")
        with pytest.raises(kbundle.Error, match="dtype f64, T is one of"):
            kbt.call(None, "softmax.scaled_forward", x.double())
        torch.testing.assert_close(softmax(x), torch.softmax(x, -1))
    with pytest.raises(RuntimeError, match="it has no gradient|computes its gradients"):
        leaf = x.clone().requires_grad_()
        operator(kbundle.default_bundle("quantize.amax"), "quantize.amax")(leaf).sum().backward()
    assert "Exception" not in capfd.readouterr().err


def test_lazily_negated_and_conjugated_tensors_are_what_they_mean(softmax):
    z = torch.randn(4, 33, dtype=torch.complex64)
    negated = z.conj().imag
    assert negated.is_neg()
    for turn in range(2):
        torch.testing.assert_close(softmax(negated), torch.softmax(-z.imag, -1))
    leaf = z.clone().requires_grad_()
    [found] = torch.autograd.grad((softmax(leaf.conj().imag) ** 2).sum(), leaf)
    [wanted] = torch.autograd.grad((torch.softmax(leaf.conj().imag, -1) ** 2).sum(), leaf)
    torch.testing.assert_close(found, wanted)


def test_what_wants_to_see_calls_sees_the_op(softmax):
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))
    softmax(X)
    for below in (False, True):
        names = []
        with Seen():
            if below:
                with torch._C._AutoDispatchBelowAutograd():
                    softmax(X)
            else:
                softmax(X)
        assert names == [str(softmax)]
    torch.testing.assert_close(torch.func.vmap(softmax)(X[None])[0], torch.softmax(X, -1))
    torch.testing.assert_close(torch.func.functionalize(softmax)(X), torch.softmax(X, -1))
    graph = make_fx(torch.func.functionalize(softmax))(X)
    assert str(softmax) in [str(node.target) for node in graph.graph.nodes]
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda x: softmax(x).sum())(X)
    meta = softmax(X.to("meta").requires_grad_())
    assert meta.device.type == "meta" and meta.requires_grad


def test_what_is_open_and_the_environment_decide_anew(probe, kernels, monkeypatch, tmp_path):
    from kbundle import _open_bundles
    shift = operator(probe, "probe.shift")
    for turn in range(2):
        again = kbundle.open(probe.path, "direct_probe")
        assert torch.equal(shift(X, bundle="direct_probe"), X + 1)
        again.close()
        with pytest.raises(RuntimeError, match="NOT_FOUND"):
            shift(X, bundle="direct_probe")
    softmax = operator(kernels, "softmax.scaled_forward")
    monkeypatch.setattr(_open_bundles, "_default", None)
    kbundle.torch._direct.library().kb_torch_forget()
    monkeypatch.setenv("KBUNDLE_PATH", kernels.path)
    for turn in range(2):
        softmax(X)
        with monkeypatch.context() as patch:
            patch.setenv("KBUNDLE_PATH", str(tmp_path / "none.kb"))
            with pytest.raises(RuntimeError, match="none.kb; take it out of .KBUNDLE_PATH"):
                softmax(X)


def test_a_changed_policy_is_followed(kernels, softmax):
    x = torch.randn(64, 128)
    softmax(x)
    wanted = [one["id"] for one in kernels.explain("softmax.scaled_forward", x)["candidates"] if one["legal"]][-1]
    try:
        kernels.force(wanted)
        softmax(x)
        assert [row for row in kernels.stats()["chosen"] if row["variant"] == wanted]
    finally:
        kbundle.clear_policy()
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1))


def test_threads_that_miss_hit_and_fail_together(probe):
    shift, wrong = operator(probe, "probe.shift"), []

    def work(_):
        for index in range(120):
            x = torch.full((index % 5 + 1, 65), float(index))
            if not torch.equal(shift(x, by=index % 3, bundle=probe.name), x + index % 3):
                wrong.append(index)
            if index % 40 == 0:
                kbundle.clear_policy()
            if index % 10 == 0:
                try:
                    shift(x, bundle="nobody %d" % index)
                except RuntimeError as error:
                    wrong.extend([] if "nobody %d" % index in str(error) else [error])
    at_once(work)
    assert not wrong
