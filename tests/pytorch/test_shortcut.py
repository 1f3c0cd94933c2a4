"""Promise: a function with a shortcut means what it means without one: what its calls are told apart by is all that it may see, and what must
be seen by torch's dispatcher is."""

import gc
import subprocess
import sys
import weakref

import pytest
from at_once import at_once

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402
from kbundle.torch import _shortcut  # noqa: E402

F = torch.nn.functional
X = torch.linspace(-2, 2, 33 * 4).reshape(4, 33)
pytestmark = [pytest.mark.usefixtures("kernels"),
              pytest.mark.skipif(not _shortcut.enabled and torch.__version__ < "2.11", reason="shortcuts are for PyTorch 2.11 and later")]


def frames_of(call):
    """Names of kbundle's functions in Python that a call runs."""
    names = []
    sys.setprofile(lambda frame, event, argument: names.append(frame.f_code.co_name) if event == "call" and "kbundle" in frame.f_code.co_filename
                   else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


A, B, GAMMA, Q = torch.randn(4, 8), torch.randn(8, 4), torch.ones(33), torch.randn(1, 2, 8, 16)
FUNCTIONS = {
    "softmax": lambda: kbt.scaled_softmax(X, 0.5), "rms_norm": lambda: kbt.rms_norm(X, GAMMA), "layer_norm": lambda: kbt.layer_norm(X, GAMMA, GAMMA),
    "residual": lambda: kbt.rms_norm(X, GAMMA, residual=X), "matmul": lambda: kbt.matmul(A, B), "dense": lambda: kbt.dense(A, B, None, "relu"),
    "attention": lambda: kbt.scaled_dot_product_attention(Q, Q, Q, is_causal=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_known_call_runs_nothing_of_the_function(name):
    assert _shortcut.enabled, "where does this PyTorch keep its keys?"
    for turn in range(3):
        FUNCTIONS[name]()
    assert [one for one in frames_of(FUNCTIONS[name]) if one != "<lambda>"] == ["entered"]


def counted(function, *states):
    """(the function with a shortcut, how often it ran in a list)."""
    ran = []

    def counting(*arguments, **named):
        ran.append(1)
        return function(*arguments, **named)
    return kbt.shortcut(*states)(counting), ran


def test_the_same_tensor_twice_is_not_two_tensors(device):
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    q, k, v = (torch.randn(1, 2, 8, 16, device=device, dtype=dtype) for _ in range(3))
    within = dict(rtol=1e-4, atol=1e-5) if device.type == "cpu" else dict(rtol=0, atol=4e-3)
    for turn in range(4):
        for given in ((q, q, q), (q, k, v), (q, k, k), (q, q, v), (k, q, q), (v, v, v)):
            torch.testing.assert_close(kbt.scaled_dot_product_attention(*given), F.scaled_dot_product_attention(*given), **within)


def test_operands_in_another_order_or_by_name_are_found_where_they_are():
    turned, _ = counted(lambda a, b, *, swap=False: kbt.matmul(b, a) if swap else kbt.matmul(a, b))
    a, b = torch.randn(5, 5), torch.randn(5, 5)
    for turn in range(4):
        for swap in (False, True):
            wanted = b @ a if swap else a @ b
            for call in (lambda: turned(a, b, swap=swap), lambda: turned(b=b, a=a, swap=swap), lambda: turned(a, swap=swap, b=b)):
                torch.testing.assert_close(call(), wanted)
        torch.testing.assert_close(turned(b=a, a=b), b @ a)


@pytest.mark.parametrize("scales", [(0.5, 0.25, 0.5), (1, 1.0, True, 2), (0.0, -0.0, 0, False), (64.0, -1.0, 2.0**-300)], ids=str)
def test_values_that_are_equal_and_differ_are_told_apart(scales):
    seen = []

    def scaled(x, scale):
        seen.append((type(scale), str(scale)))
        return kbt.call(None, "softmax.scaled_forward", x, scale=float(scale))
    known = kbt.shortcut()(scaled)
    for turn in range(5):
        for scale in scales:
            assert torch.equal(known(X, scale), scaled(X, scale))
    del seen[:]
    for scale in scales:
        known(X, scale)
    assert not seen
    for other in (3, "0.5"):
        known(X, other)
    assert len(seen) == 2


def test_what_is_no_value_is_asked_each_time(probe):
    shifted, ran = counted(lambda x, by: kbt.call(probe, "probe.shift", x, by=by[0]))
    by = [1]
    for turn in range(4):
        by[0] = turn
        assert torch.equal(shifted(X, by), X + turn)
    assert len(ran) == 4


def test_a_state_that_the_function_depends_on_is_asked_each_time(probe):
    level = [1]
    shifted, ran = counted(lambda x: kbt.call(probe, "probe.shift", x, by=level[0]), lambda: level[0])
    for turn in range(4):
        for level[0] in (1, 2, -1):
            assert torch.equal(shifted(X), X + level[0])
    assert len(ran) <= 6
    before = torch.get_float32_matmul_precision()
    try:
        for turn in range(4):
            for precision in ("highest", "high"):
                torch.set_float32_matmul_precision(precision)
                seen = []
                kbt.matmul(A, B)
                with kbt_calls(seen):
                    kbt.matmul(A, torch.randn(8, 20 + turn))
                assert seen[-1]["precision"] == ("ieee" if precision == "highest" else "tf32")
    finally:
        torch.set_float32_matmul_precision(before)

    def broken():
        raise ValueError("no answer")
    asked, ran = counted(lambda x: kbt.call(probe, "probe.shift", x), broken)
    assert torch.equal(asked(X), X + 1) and torch.equal(asked(X), X + 1) and len(ran) == 2


class kbt_calls:
    """Attributes of the calls that matmul's module makes."""

    def __init__(self, seen):
        from kbundle_kernels.pytorch import matmul
        self.module, self.seen = sys.modules[matmul.__module__] if callable(matmul) else matmul, seen

    def __enter__(self):
        self.real = self.module.call
        self.module.call = lambda bundle, op, *tensors, **attributes: (self.seen.append(attributes), self.real(bundle, op, *tensors, **attributes))[1]

    def __exit__(self, *_):
        self.module.call = self.real


@pytest.mark.parametrize("name, function, formula", [
    ("a view of the result", lambda x: kbt.scaled_softmax(x).reshape(-1), lambda x: torch.softmax(x, -1).reshape(-1)),
    ("a changed result", lambda x: kbt.scaled_softmax(x) + 1, lambda x: torch.softmax(x, -1) + 1),
    ("a changed operand", lambda x: kbt.scaled_softmax(x * 2), lambda x: torch.softmax(x * 2, -1)),
    ("an operand of its own", lambda x: kbt.matmul(x, torch.ones(33, 2) * float(x[0, 0])), lambda x: x @ torch.ones(33, 2) * float(x[0, 0])),
    ("two ops", lambda x: kbt.scaled_softmax(kbt.scaled_softmax(x)), lambda x: torch.softmax(torch.softmax(x, -1), -1)),
    ("no op", lambda x: x, lambda x: x),
    ("nothing", lambda x: kbt.scaled_softmax(x) and None if x.numel() == 1 else None, lambda x: None)])
def test_what_is_more_than_an_op_runs_each_time(name, function, formula):
    known, ran = counted(function)
    for turn in range(8):
        x = torch.randn(4, 33)
        found, wanted = known(x), formula(x)
        assert found is None if wanted is None else torch.allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert len(ran) == 8


def test_results_in_another_order_and_some_of_them(demo):
    for picked in (lambda r: (r[1], r[0]), lambda r: r[1], lambda r: (r[0], None, r[0])):
        known, ran = counted(lambda x, picked=picked: picked(kbt.call(demo, "demo.bounds", x)))
        for turn in range(5):
            x = torch.randn(3, 4, 33)
            found, wanted = known(x), picked((x.amin(-1), x.amax(-1)))
            assert type(found) is type(wanted)
            for one, other in zip(found, wanted) if type(wanted) is tuple else [(found, wanted)]:
                assert one is other is None or torch.equal(one, other)
        assert len(ran) <= 2


def test_a_result_that_is_written_over_an_operand_leaves_the_operand(demo):
    added, _ = counted(lambda y, x: kbt.call(demo, "demo.accumulate", y, x, alpha=0.5))
    for turn in range(4):
        y, x = torch.randn(99), torch.randn(99)
        kept = y.clone()
        torch.testing.assert_close(added(y, x), y + 0.5 * x)
        assert torch.equal(y, kept)


def test_shapes_dtypes_and_layouts(device):
    for turn in range(4):
        for shape in ((4, 33), (33, 4), (2, 2, 33), (0, 33), (1,)):
            for dtype in (torch.float32, torch.float16):
                x = torch.randn(shape, device=device).to(dtype)
                for one in (x, x.transpose(0, -1), x[:1], x[..., ::2])[:4 if x.numel() else 1]:
                    torch.testing.assert_close(kbt.scaled_softmax(one, 0.75), torch.softmax(one.float() * 0.75, -1).to(dtype))


def test_lazy_tensors_subclasses_and_those_that_outlived_a_transform():
    z, kept = torch.randn(4, 33, dtype=torch.complex64), []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(X)

    class Own(torch.Tensor):
        pass
    for turn in range(4):
        for x in (z.conj().imag, kept[0], X.as_subclass(Own), torch.nn.Parameter(X), torch._efficientzerotensor(4, 33)):
            torch.testing.assert_close(torch.as_tensor(kbt.scaled_softmax(x, 0.625)), torch.softmax(torch.as_tensor(x) * 0.625, -1), check_dtype=True)
        torch.testing.assert_close(kbt.scaled_softmax(X, 0.625), torch.softmax(X * 0.625, -1))
        with pytest.raises(kbundle.Error, match="f64"):
            kbt.scaled_softmax(X.double(), 0.625)
        with pytest.raises((RuntimeError, NotImplementedError)):
            kbt.scaled_softmax(X.to_sparse(), 0.625)
        assert kbt.scaled_softmax(X.to("meta"), 0.625).device.type == "meta"


def test_gradients_are_wanted_where_they_are(device):
    plain, leaf = X.to(device), X.clone().to(device).requires_grad_()
    for turn in range(5):
        assert not kbt.scaled_softmax(plain, 0.375).requires_grad
        y = kbt.scaled_softmax(leaf, 0.375)
        [found] = torch.autograd.grad((y ** 2).sum(), leaf)
        [wanted] = torch.autograd.grad((torch.softmax(leaf * 0.375, -1) ** 2).sum(), leaf)
        torch.testing.assert_close(found, wanted)
        with torch.no_grad():
            assert not kbt.scaled_softmax(leaf, 0.375).requires_grad
        with torch.inference_mode():
            assert kbt.scaled_softmax(leaf, 0.375).is_inference()
        part = torch.zeros(2, 3, device=device)
        part[0] = leaf[0, :3] * 2
        assert kbt.scaled_softmax(part, 0.375).requires_grad
    a, b = (torch.randn(3, 3, device=device, requires_grad=True) for _ in range(2))
    for turn in range(4):
        for x, w in ((a, b), (a.detach(), b), (a, b.detach()), (a.detach(), b.detach())):
            y = kbt.dense(x, w, None, "gelu")
            wanted = [one for one in (x, w) if one.requires_grad]
            assert y.requires_grad == bool(wanted)
            if wanted:
                formula = F.gelu(x.double() @ w.double(), approximate="tanh")
                for found, other in zip(torch.autograd.grad(y.sum(), wanted), torch.autograd.grad(formula.sum(), wanted)):
                    torch.testing.assert_close(found, other, rtol=1e-4, atol=1e-5)


def test_modes_transforms_and_the_profiler_see_the_op():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))
    for turn in range(4):
        kbt.scaled_softmax(X)
        names = []
        with Seen():
            kbt.scaled_softmax(X)
        assert [name for name in names if "softmax_scaled_forward" in name]
        torch.testing.assert_close(torch.func.vmap(kbt.scaled_softmax)(X[None])[0], torch.softmax(X, -1))
        for x in (X, X.clone().requires_grad_()):
            kbt.scaled_softmax(x)
            with torch.profiler.profile() as profile:
                kbt.scaled_softmax(x)
            assert [one for one in profile.events() if "softmax_scaled_forward" in one.name]
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(X, torch.ones_like(X))
            with pytest.raises(kbundle.Error, match="no forward derivatives"):  # seen, and not made without them
                kbt.scaled_softmax(dual)


def test_errors_are_the_functions_and_do_no_harm():
    for turn in range(4):
        kbt.matmul(A, B)
        with pytest.raises(ValueError, match="they must be equally many"):
            kbt.matmul(A, A)
        with pytest.raises(TypeError, match="argument"):
            kbt.matmul(A)
        with pytest.raises(TypeError, match="nobody"):
            kbt.matmul(A, B, nobody=1)
        torch.testing.assert_close(kbt.matmul(A, B), A @ B)


def test_the_policy_and_what_is_open_decide_anew(kernels, probe):
    x = torch.randn(64, 128)
    for turn in range(3):
        kbt.scaled_softmax(x)
    wanted = [one["id"] for one in kernels.explain("softmax.scaled_forward", x)["candidates"] if one["legal"]][-1]
    try:
        kernels.force(wanted)
        before = kernels.stats()["chosen"]
        kbt.scaled_softmax(x)
        assert [row for row in kernels.stats()["chosen"] if row["variant"] == wanted], before
    finally:
        kbundle.clear_policy()
    again = kbundle.open(probe.path, "shortcut_probe")
    shifted, ran = counted(lambda x: kbt.call(again, "probe.shift", x))
    for turn in range(3):
        assert torch.equal(shifted(X), X + 1)
    again.close()
    with pytest.raises(kbundle.Error, match="NOT_FOUND|FAILED_PRECONDITION"):
        shifted(X)


def test_the_environment_decides_anew_at_each_call(kernels, monkeypatch, tmp_path):
    from kbundle import _open_bundles
    monkeypatch.setattr(_open_bundles, "_default", None)
    kbundle._bundle.tell_listeners()
    monkeypatch.setattr(_open_bundles, "_changes", _open_bundles._changes + 1)
    monkeypatch.setenv("KBUNDLE_PATH", kernels.path)
    try:
        for turn in range(4):
            kbt.scaled_softmax(X)
        assert "attempt" not in frames_of(lambda: kbt.scaled_softmax(X))
        monkeypatch.setenv("KBUNDLE_PATH", str(tmp_path / "none.kb"))
        with pytest.raises(kbundle.Error, match="none.kb; take it out of .KBUNDLE_PATH"):
            kbt.scaled_softmax(X)
    finally:
        monkeypatch.undo()
        kbundle._bundle.tell_listeners()


def test_nothing_is_kept_of_what_calls_had(probe):
    x = torch.randn(4, 33)
    for turn in range(3):
        kbt.scaled_softmax(x)
    gc.collect()
    counts = sys.getrefcount(x), sys.getrefcount(None)
    kept = [weakref.ref(kbt.scaled_softmax(x)) for turn in range(1000)]
    gc.collect()
    assert not [one for one in kept if one() is not None]
    assert sys.getrefcount(x) == counts[0] and abs(sys.getrefcount(None) - counts[1]) < 100
    function = lambda x: kbt.call(probe, "probe.shift", x)  # noqa: E731
    of_function = weakref.ref(function)
    known = kbt.shortcut()(function)
    for turn in range(3):
        known(x)
    del function, known
    gc.collect()
    assert of_function() is None


def test_threads_that_learn_and_know_together(probe):
    shifted, wrong = kbt.shortcut()(lambda x, by: kbt.call(probe, "probe.shift", x, by=by)), []

    def work(_):
        for index in range(300):
            x = torch.full((index % 5 + 1, 65 if index % 7 else 20000), float(index))  # the larger ones give the lock away
            if not torch.equal(shifted(x, index % 3), x + index % 3):
                wrong.append(index)
            if index % 60 == 0:
                kbundle.clear_policy()
    at_once(work)
    assert not wrong


def test_where_torch_keeps_things_elsewhere_there_are_no_shortcuts(kernels):
    program = ("import sys, torch, kbundle\n"
               "torch._efficientzerotensor = lambda *size: torch.empty(*size)\n"  # said to be none of the plain ones
               "import kbundle.torch as kbt\n"
               "from kbundle.torch import _shortcut\n"
               "assert not _shortcut.enabled\n"
               "kbundle.use(sys.argv[1])\n"
               "x = torch.ones(3, 5, requires_grad=True)\n"
               "for turn in range(3): torch.testing.assert_close(kbt.scaled_softmax(x), torch.softmax(x, -1))\n"
               "kbt.scaled_softmax(x).sum().backward()\n")
    done = subprocess.run([sys.executable, "-c", program, kernels.path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
