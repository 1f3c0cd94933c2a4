"""Promise: a call that the library's kernel makes is the call that goes the long way: same values, same errors, and what the kernel must not
make it does not."""

import gc
import os
import subprocess
import sys
import threading
import warnings

import pytest
from at_once import at_once

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402
from kbundle.torch import _eager, _operators  # noqa: E402

X = torch.linspace(-2, 2, 33 * 4).reshape(4, 33)


@pytest.fixture
def long_calls(monkeypatch):
    """Ops of calls that go the long way, as they do."""
    seen, long = [], _operators._long

    def counted(bundle, op, tensors, attributes):
        seen.append(op)
        return long(bundle, op, tensors, attributes)
    monkeypatch.setattr(_operators, "_long", counted)
    return seen


def softmax(x, **attributes):
    return kbt.call(None, "softmax.scaled_forward", x, **attributes)


def test_only_the_first_call_of_a_problem_goes_the_long_way(kernels, device, long_calls):
    x = X.to(device)
    softmax(x, scale=0.75)
    del long_calls[:]
    for shape in [(4, 33), (33, 4), (2, 2, 33)]:
        one = torch.randn(shape, device=device)
        for turn in range(3):
            torch.testing.assert_close(softmax(one, scale=0.75), torch.softmax(one * 0.75, -1))
        for again in (one.half(), one.t() if one.dim() == 2 else one.transpose(0, 1)):
            torch.testing.assert_close(softmax(again, scale=0.75), torch.softmax(again * 0.75, -1))
    assert long_calls == ["softmax.scaled_forward"] * len(long_calls) and len(long_calls) <= 7  # (4, 33) was known; each shape, dtype once


def test_gradients_too(kernels, device, long_calls):
    x = X.clone().to(device).requires_grad_()
    for turn in range(3):
        del long_calls[:]
        [found] = torch.autograd.grad((softmax(x, scale=0.125) ** 2).sum(), x)
    assert not long_calls
    [wanted] = torch.autograd.grad((torch.softmax(x * 0.125, -1) ** 2).sum(), x)
    torch.testing.assert_close(found, wanted)


def test_a_gradient_of_some_of_the_operands_where_others_are_left_out(kernels, device):
    x, residual = X.to(device), torch.ones(4, 33, device=device)
    gamma = torch.linspace(1, 2, 33, device=device).requires_grad_()
    [wanted] = torch.autograd.grad(torch.nn.functional.layer_norm(x + residual, (33,), gamma, None, 1e-6).sum(), gamma)
    for turn in range(3):
        y, _ = kbt.layer_norm(x, gamma, None, residual=residual)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), gamma)[0], wanted, rtol=1e-5, atol=1e-5)
        assert not kbt.layer_norm(x, gamma.detach(), None, residual=residual)[0].requires_grad


def test_attributes_that_are_equal_and_differ_are_not_taken_for_each_other(probe, kernels):
    for alpha in (0.0, -0.0, 0.0, 0, -0.0, 0.5, -0.0):  # of zeros, the sign alone says which it was
        for turn in range(3):
            [y] = [one for one in kbt.call(None, "matmul.matmul", X, X.t(), out_dtype="f32", precision="ieee", alpha=alpha) if one is not None]
            assert torch.equal(torch.signbit(y), torch.signbit(torch.tensor(alpha) * (X @ X.t())))
    assert torch.equal(softmax(X, scale=True), softmax(X, scale=1)) and not torch.equal(softmax(X, scale=1), softmax(X, scale=0.0))
    for by in (1, 2, 1):
        for turn in range(3):
            assert torch.equal(kbt.call(probe, "probe.shift", X, by=by), X + by)
    assert torch.equal(softmax(X, scale=1), softmax(X, scale=1.0))
    with pytest.raises(RuntimeError, match="by"):
        kbt.call(probe, "probe.shift", X, by=1.0)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0,)], ids=str)
def test_tensors_without_elements(probe, device, shape):
    x = torch.ones(shape, device=device)
    for turn in range(3):
        assert kbt.call(probe, "probe.shift", x).shape == shape


def test_what_fails_is_said_as_ever_where_the_op_is_known(kernels, long_calls):
    for turn in range(3):
        softmax(X)
    for turn in range(2):
        with pytest.raises(kbundle.Error, match="dtype f64, T is one of f32, f16, bf16"):
            softmax(X.double())
        with pytest.raises(kbundle.Error, match="operand 1 is on meta, those before it are on cpu"):
            kbt.call(None, "softmax.scaled_backward", X, X.to("meta"))
        for x in (X, X.clone().requires_grad_()):
            with pytest.raises(kbundle.Error, match="operand 0 is of layout torch.sparse_coo"):
                softmax(x.to_sparse())
            assert softmax(x.to("meta")).device.type == "meta"
        with pytest.raises(kbundle.Error, match="attribute 'scale' is a tensor"):
            softmax(X, scale=torch.ones(2))
    del long_calls[:]
    softmax(X)
    assert not long_calls


def test_what_wants_to_see_calls_sees_the_operator_of_the_op(kernels):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        names = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names.append(function.name().split(".")[0])
            return function(*args, **(kwargs or {}))
    for turn in range(3):
        softmax(X)
    with Seen():
        softmax(X)
    assert Seen.names == ["kbundle::softmax_scaled_forward"]
    with torch._subclasses.FakeTensorMode() as mode:
        assert softmax(mode.from_tensor(X)).shape == X.shape
    torch.testing.assert_close(torch.func.vmap(softmax)(X[None])[0], torch.softmax(X, -1))
    graph = torch.fx.experimental.proxy_tensor.make_fx(softmax)(X)
    assert [str(node.target).split(".i")[0] for node in graph.graph.nodes if node.op == "call_function"] == ["kbundle.softmax_scaled_forward"]


def test_inference_mode_and_tensors_of_it(kernels):
    x = X.clone().requires_grad_()
    for turn in range(3):
        with torch.inference_mode():
            y = softmax(x, scale=0.3)
        assert y.is_inference() and not y.requires_grad
        with torch.no_grad():
            assert not softmax(x, scale=0.3).requires_grad
        assert softmax(x, scale=0.3).requires_grad
        torch.testing.assert_close(softmax(y), torch.softmax(y, -1))


def test_a_tensor_that_outlived_a_transform(kernels):
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(X)
    for turn in range(3):
        torch.testing.assert_close(softmax(kept[0], scale=0.6), torch.softmax(X * 0.6, -1))


def test_what_was_chosen_before_a_change_of_the_policy_is_not_kept(kernels):
    x = torch.randn(64, 128)
    for turn in range(3):
        softmax(x)
    wanted = [one["id"] for one in kernels.explain("softmax.scaled_forward", x)["candidates"] if one["legal"]][-1]
    try:
        kernels.force(wanted)
        softmax(x)
        assert [row for row in kernels.stats()["chosen"] if row["variant"] == wanted]
    finally:
        kbundle.clear_policy()
    for turn in range(2):
        torch.testing.assert_close(softmax(x), torch.softmax(x, -1))


def test_the_environment_decides_anew_at_each_call(kernels, monkeypatch, tmp_path):
    from kbundle import _open_bundles
    monkeypatch.setattr(_open_bundles, "_default", None)
    monkeypatch.setattr(_open_bundles, "_changes", _open_bundles._changes + 1)
    monkeypatch.setenv("KBUNDLE_PATH", kernels.path)
    for turn in range(3):
        softmax(X)
    monkeypatch.setenv("KBUNDLE_PATH", str(tmp_path / "none.kb"))
    with pytest.raises(kbundle.Error, match="none.kb; take it out of .KBUNDLE_PATH"):
        softmax(X)


def test_a_bundle_that_was_closed_or_replaced_is_not_asked(probe, tmp_path):
    again = kbundle.open(probe.path, "eager_probe")
    for turn in range(3):
        kbt.call(again, "probe.shift", X)
    reloaded = kbundle.open(probe.path, "eager_probe", reload=True)
    assert torch.equal(kbt.call(reloaded, "probe.shift", X), X + 1)
    for bundle in (again, reloaded):
        bundle.close()
    with pytest.raises(kbundle.Error, match="NOT_FOUND|FAILED_PRECONDITION"):
        kbt.call(reloaded, "probe.shift", X)


def test_sites_and_their_plans_end_with_what_they_are_of(probe):
    for index in range(50):
        bundle = kbundle.open(probe.path, "ending_%d" % index)
        kbt.call(bundle, "probe.shift", X, by=index)
        kbt.call(bundle, "probe.shift", X, by=index)
        bundle.close()
    kbt.call(probe, "probe.shift", X)
    gc.collect()
    assert sum(type(one) is _eager.Site for one in gc.get_objects()) < 20


def test_threads_that_miss_and_hit_together(probe):
    wrong = []

    def work(_):
        for index in range(120):
            x = torch.full((index % 5 + 1, 65), float(index))
            if not torch.equal(kbt.call(probe, "probe.shift", x, by=index % 3), x + index % 3):
                wrong.append(index)
            if index % 40 == 0:
                kbundle.clear_policy()
    at_once(work)
    assert not wrong


def test_a_process_that_was_forked_calls_what_its_parent_called(probe):
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            kbt.call(probe, "probe.shift", X)
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for turn in range(20):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                right = torch.equal(kbt.call(probe, "probe.shift", X), X + 1)
                os._exit(0 if right else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


def test_where_torchs_functions_are_missing_the_import_warns_and_calls_go_the_long_way(kernels):
    program = ("import ctypes, warnings, kbundle, kbundle._library as l\n"
               "real = l.library()\n"
               "class Missing:\n"
               "    def __getattr__(self, name): return getattr(real, name)\n"
               "    def kb_torch_load(self, cuda): return real.kb_torch_load(ctypes.POINTER(ctypes.c_int32)())\n"
               "l.library = lambda missing=Missing(): missing\n"
               "with warnings.catch_warnings(record=True) as said:\n"
               "    warnings.simplefilter('always')\n"
               "    import kbundle.torch as kbt\n"
               "assert [w for w in said if 'eager calls are right, and cost the host 10 us more' in str(w.message)], said\n"
               "import sys, torch\n"
               "x = torch.ones(3, 5)\n"
               "for turn in range(3): assert torch.equal(kbt.call(kbundle.open(sys.argv[1]), 'softmax.scaled_forward', x), torch.softmax(x, -1))\n")
    done = subprocess.run([sys.executable, "-c", program, kernels.path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
