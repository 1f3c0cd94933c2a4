"""Promise: any op of a bundle is a function of tvm-ffi, with nothing said of it by hand: tensors of whoever speaks DLPack, results written in
place, attributes said before or with each call; what makes no sense is refused by name, and leaves results alone."""

import math

import numpy as np
import pytest
from at_once import at_once
from python.conftest import bundle_path

tvm_ffi = pytest.importorskip("tvm_ffi", reason="no tvm-ffi here: scripts/setup installs it")

import kbundle  # noqa: E402
import kbundle.tvm_ffi as kbv  # noqa: E402
from kbundle import _open_bundles  # noqa: E402

random = np.random.default_rng()


@pytest.fixture(scope="module")
def probe(request):
    return kbundle.open(bundle_path("probe", request))


@pytest.fixture(scope="module")
def demo(request):
    return kbundle.open(bundle_path("demo", request))


@pytest.fixture(scope="module")
def kernels(request):
    return kbundle.open(bundle_path("kernels", request))


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


def poisoned(*shape, dtype=np.float32):
    return np.full(shape, np.nan if dtype == np.float32 else 77, dtype)


def softmax(x, scale):
    x = x.astype(np.float64) * scale
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("shape", [(4, 33), (1, 1), (2, 3, 1025), (300, 4099)], ids=str)
def test_numpy_calls_it(kernels, shape):
    function = kbv.function(kernels, "softmax.scaled_forward", scale=0.25)
    for turn in range(2):
        x, y = normal(*shape), poisoned(*shape)
        function(x, y)
        np.testing.assert_allclose(y, softmax(x, 0.25), rtol=1e-5, atol=1e-7)


def test_attributes_come_with_the_call_or_before_it(kernels, probe):
    x, y = normal(3, 7), poisoned(3, 7)
    function = kbv.function(kernels, "softmax.scaled_forward")
    for scale in (0.5, 2, 0.5, None):
        function(x, y, scale)
        np.testing.assert_allclose(y, softmax(x, 1.0 if scale is None else scale), rtol=1e-5, atol=1e-7)
    shift = kbv.function(probe, "probe.shift")
    for by in (3, -1):
        shift(x, y, by)
        np.testing.assert_array_equal(y, x + np.float32(by))
    shift(x, y)
    np.testing.assert_array_equal(y, x + 1)


def test_an_attribute_that_is_a_text(kernels):
    function = kbv.function(kernels, "attention.sdpa_forward", given=("q", "k", "v"), scale=0.25, with_stats=False)
    q = normal(2, 5, 3, 16)
    names = [one.name for one in kernels.op("attention.sdpa_forward").attributes]
    open_names = [name for name in names if name not in ("scale", "with_stats")]
    found = {}
    for layout in ("bshd", "bhsd"):
        o = poisoned(*q.shape)
        function(q, q, q, o, None, *[layout if name == "layout" else None for name in open_names[:open_names.index("layout") + 1]])
        found[layout] = o
        wanted = np.swapaxes(q, 1, 2).astype(np.float64) if layout == "bshd" else q.astype(np.float64)
        wanted = softmax(wanted @ np.swapaxes(wanted, -1, -2), 0.25) @ wanted
        np.testing.assert_allclose(o, np.swapaxes(wanted, 1, 2) if layout == "bshd" else wanted, rtol=1e-4, atol=1e-5)


def test_operands_and_results_that_are_left_out(kernels):
    x, gamma = normal(4, 33), normal(33)
    wanted = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) * gamma
    results = [one.name for one in kernels.op("norm.rmsnorm_forward").results]
    for given, tensors in ((None, (x, gamma, None)), (("x", "gamma"), (x, gamma))):
        function = kbv.function(kernels, "norm.rmsnorm_forward", given=given)
        for all_of_them in (True, False):
            y, rsigma = poisoned(4, 33), poisoned(4)
            made = {"y": y, "rsigma": rsigma}
            function(*tensors, *([made.get(name) for name in results] if all_of_them else [y, rsigma]))
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
            assert np.isfinite(rsigma).all()


def test_a_result_that_is_written_over_an_operand(demo):
    function = kbv.function(demo, "demo.accumulate", alpha=0.5)
    y, x = normal(4099), normal(4099)
    wanted = y + np.float32(0.5) * x
    with pytest.raises(ValueError, match="result 0 is written over operand 0; give that operand's tensor"):
        function(y, x, poisoned(4099))
    function(y, x, y)
    np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_integers_and_several_results(demo):
    x = random.integers(-1000, 1000, (2, 3, 129), dtype=np.int32)
    low, high = poisoned(2, 3, dtype=np.int32), poisoned(2, 3, dtype=np.int32)
    kbv.function(demo, "demo.bounds")(x, low, high)
    np.testing.assert_array_equal(low, x.min(-1))
    np.testing.assert_array_equal(high, x.max(-1))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)], ids=str)
def test_tensors_without_elements(probe, shape):
    kbv.function(probe, "probe.shift")(np.ones(shape, np.float32), np.ones(shape, np.float32))


def test_a_workspace_is_found(kernels):
    asked = []
    for op in kernels.ops:
        for problem in op.problems:
            operands = tuple((one["dtype"], tuple(one["dims"])) if one["present"] else None for one in problem.operands)
            try:
                attributes = kernels.normal_attributes(op.name, problem.attributes)
                inferred = kernels.infer(op.name, operands, attributes, 1)
            except kbundle.Error:
                continue
            small = all(one is None or math.prod(one[1]) <= 1 << 16 for one in operands)
            floats = all(one is None or one[0] == "f32" for one in operands) and all(r["dtype"] == "f32" for r in inferred["results"] if r["present"])
            if inferred["workspace_bytes"] and small and floats and not any(result.alias >= 0 for result in op.results):
                asked.append((op.name, operands, problem.attributes, inferred["results"]))
    for name, operands, attributes, results in asked[:5]:
        tensors = [None if one is None else normal(*one[1]) for one in operands]
        found = [[poisoned(*one["dims"]) if one["present"] else None for one in results] for turn in range(2)]
        for one in found:
            kbv.function(kernels, name, **attributes)(*tensors, *one)
        for first, second in zip(*found):
            if first is not None:
                np.testing.assert_array_equal(first, second)
                assert not np.isnan(first).all()
    assert asked


def test_every_op_is_a_global_function(probe, demo):
    names = kbv.register(probe) + kbv.register(demo, "mine.")
    assert {"kbundle.probe.shift", "mine.demo.bounds"} <= set(names)
    x, y = normal(2, 3), poisoned(2, 3)
    tvm_ffi.get_global_func("kbundle.probe.shift")(x, y, 5)
    np.testing.assert_array_equal(y, x + 5)


def test_what_makes_no_sense_is_refused_by_name(kernels, probe):
    function = kbv.function(kernels, "softmax.scaled_forward")
    x, y = normal(4, 6), poisoned(4, 6)
    for arguments, says in [((x,), r"result 0 is given as absent, softmax.scaled_forward\(x=f32\[4,6\].* has f32\[4,6\] there"),
                            ((x, y, y), "result 1 is given as"), ((x, y[:, :3]), "result 0: its elements do not lie row after row"),
                            ((x, np.empty((4, 5), np.float32)), r"result 0 is given as f32\[4,5\]"),
                            ((x.astype(np.complex64), y), "operand 0: its dtype is DLPack's code 5 of 64 bits"),
                            ((x.astype(np.float64), y), "dtype f64, T is one of"), ((), "operand 0 is missing"),
                            ((x, y, 1.0, 2.0), "2 values are given behind the tensors, 1 attributes are still open"),
                            ((x, y, "much"), "scale"), ((x, y, [1.0]), "what is given for attribute 'scale' is no number")]:
        with pytest.raises((ValueError, RuntimeError), match=says):
            function(*arguments)
        assert np.isnan(y).all()
    with pytest.raises(kbundle.Error, match="it has no attribute 'scall'; there are scale"):
        kbv.function(kernels, "softmax.scaled_forward", scall=2.0)
    with pytest.raises(ValueError, match="bool true given, it is of type int"):
        kbv.function(probe, "probe.shift")(x, y, True)
    with pytest.raises(kbundle.Error, match="given names 'q'; its operands are x"):
        kbv.function(kernels, "softmax.scaled_forward", given=["q"])
    with pytest.raises(kbundle.Error, match="is no bundle"):
        kbv.function("kernels.kb", "softmax.scaled_forward")
    with pytest.raises(kbundle.Error, match="NOT_FOUND"):
        kbv.function(probe, "probe.nothing")


def test_a_changed_policy_is_followed_and_a_closed_bundle_kept(kernels, probe):
    x, y = normal(64, 128), poisoned(64, 128)
    function = kbv.function(kernels, "softmax.scaled_forward", scale=1.0)
    function(x, y)
    wanted = [one["id"] for one in kernels.explain("softmax.scaled_forward", x)["candidates"] if one["legal"]][-1]
    try:
        kernels.force(wanted)
        function(x, y)
        assert [row for row in kernels.stats()["chosen"] if row["variant"] == wanted]
    finally:
        kbundle.clear_policy()
    again = kbundle.open(probe.path, "tvm_probe")
    shift = kbv.function(again, "probe.shift")
    again.close()
    shift(x, y)
    np.testing.assert_array_equal(y, x + 1)


def test_without_a_bundle_it_is_of_what_was_loaded_last(request, monkeypatch):
    monkeypatch.setattr(_open_bundles, "_default", None)
    old = kbundle.use(kbundle.open(bundle_path("probe", request), "tvm reload"))
    new = kbundle.open(bundle_path("other_probe", request), "tvm reload", reload=True)
    x, y = normal(3, 7), poisoned(3, 7)
    kbv.function(None, "probe.shift", by=83)(x, y)
    np.testing.assert_array_equal(y, x + 83)
    assert [row["content_id"] for row in kbundle.stats()["chosen"] if "by=83" in row["problem"]] == [new.content_id] != [old.content_id]


def test_threads_at_once(probe):
    shift, wrong = kbv.function(probe, "probe.shift"), []

    def work(_):
        for index in range(200):
            x = np.full((index % 5 + 1, 65), index, np.float32)
            y = np.empty_like(x)
            shift(x, y, index % 3)
            if not np.array_equal(y, x + index % 3):
                wrong.append(index)
            if index % 50 == 0:
                kbundle.clear_policy()
    at_once(work)
    assert not wrong


def test_torchs_tensors_too(probe):
    torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")
    x, y = torch.randn(3, 5), torch.full((3, 5), math.nan)
    kbv.function(probe, "probe.shift")(x, y, 2)
    assert torch.equal(y, x + 2)
    if torch.cuda.is_available():
        x, y = x.cuda(), y.cuda()
        with torch.cuda.stream(torch.cuda.Stream()), tvm_ffi.use_torch_stream():
            kbv.function(probe, "probe.shift")(x, y, 3)
            assert torch.equal(y, x + 3)


def test_jax_calls_it_by_jax_tvm_ffi(probe):
    jax_tvm_ffi = pytest.importorskip("jax_tvm_ffi", reason="no jax-tvm-ffi here: pip install jax-tvm-ffi")
    import jax
    import jax.numpy as jnp
    jax_tvm_ffi.register_ffi_target("kbundle.test.shift", kbv.function(probe, "probe.shift"), ["args", "rets", "attrs.by"], platform="cpu")
    shift = jax.jit(lambda x: jax.ffi.ffi_call("kbundle.test.shift", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, by=4))
    np.testing.assert_array_equal(np.asarray(shift(jnp.arange(6.0))), np.arange(6.0) + 4)
