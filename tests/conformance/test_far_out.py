"""What lies far from zero, spans more than a float or sums up millions loses nothing on this CPU: results of host variants against float64."""

import os
import pathlib

import numpy as np
import pytest

from conformance import capi, compare, devices, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))
DTYPES = {np.dtype(numpy): name for name, numpy in devices.NUMPY.items()}


class Host:
    """Launches of what is chosen here, by an op's name, operands by position and attributes."""

    def __init__(self):
        self.bundle, self.device = capi.Bundle(BUNDLE), devices.Host()
        self.ops = {op["name"]: op for op in self.bundle.describe()["ops"]}

    def problem(self, name, arrays, attributes):
        op = self.ops[name]
        arrays = [*arrays, *[None] * (len(op["operands"]) - len(arrays))]
        return op, arrays, capi.Problem(name, [None if a is None else (DTYPES[a.dtype], a.shape) for a in arrays], attributes)

    def run(self, name, *arrays, **attributes):
        op, arrays, problem = self.problem(name, arrays, attributes)
        launch = runner.Launch(self.device, op, problem, self.bundle.infer(problem, capi.HOST), arrays, 0)
        try:
            return launch.run(capi.Plan(self.bundle, problem, capi.HOST))
        finally:
            launch.free()

    def wanted(self, name, *arrays, **attributes):
        op, arrays, problem = self.problem(name, arrays, attributes)
        with np.errstate(all="ignore"):
            return runner.wanted_results(runner.load_reference(name.split(".")[0], [ROOT / "kernels"]), op, problem, arrays)

    def errors(self, name, *arrays, **attributes):
        """Of each result, in its tolerances."""
        found, wanted = self.run(name, *arrays, **attributes), self.wanted(name, *arrays, **attributes)
        return [compare.worst(f, w, **runner.tolerance_of(self.ops[name], number, DTYPES[f.dtype]))
                for number, (f, w) in enumerate(zip(found, wanted)) if f is not None]

    def hold(self, name, *arrays, **attributes):
        errors = self.errors(name, *arrays, **attributes)
        assert all(ratio <= 1 for ratio, _ in errors), errors


@pytest.fixture(scope="module")
def host():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    return Host()


def normal(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("columns", [8, 13, 16, 32, 40, 1000])
@pytest.mark.parametrize("far", [1e2, -3e3, 1e9, 1e10, 3e37])
@pytest.mark.parametrize("scale", [0.3, -1.7])
def test_masked_logits_keep_their_digits(host, columns, far, scale):
    """Beside others as large, and with every logit far above or below what a dropped one is."""
    x = ((normal(1, 1, 200, columns) * max(1, abs(far) / 1e8) + far) / scale).astype(np.float32)
    mask = np.random.default_rng(1).random((1, 1, 200, columns)) < 0.3
    mask[..., 0], mask[0, 0, :3] = False, [[True], [False], [True]]
    host.hold("softmax.scaled_masked_forward", x, mask.astype(np.uint8), scale=scale)


def test_rows_around_what_a_dropped_logit_is(host):
    x = np.array([[-1e4, -1e4, -1e4], [-9999, -10001, 0], [-2e4, -3e4, -4e4], [-np.inf] * 3, [-9990.5, -9991, 5]], np.float32)[None, None]
    for mask in (np.zeros_like(x), np.tile([0, 0, 1], (1, 1, 5, 1)), np.ones_like(x)):
        host.hold("softmax.scaled_masked_forward", x, mask.astype(np.uint8), scale=1.0)


@pytest.mark.parametrize("scale", [0.0, 1e-38, -1e-38, 1e-3])
def test_rows_wider_than_a_float(host, scale):
    x = np.array([[3e38, -3e38, 0], [-3e38, 3e38, 3e38], [1e38, 3.4e38, -3.4e38]], np.float32)
    host.hold("softmax.scaled_forward", x, scale=scale)
    host.hold("softmax.scaled_causal_forward", x[None], scale=scale)


@pytest.mark.parametrize("scale", [1.5e38, 3.4e38, -3.4e38])
def test_scales_as_large_as_a_float(host, scale):
    x = normal(7, 33) * np.float32(1e-38)
    host.hold("softmax.scaled_forward", x, scale=scale)


@pytest.mark.parametrize("far", [0.0, 1e4, -1e6])
@pytest.mark.parametrize("columns", [33, 5000])
def test_smoothed_losses_far_from_zero(host, columns, far):
    logits, labels = (normal(16, columns) + np.float32(far)).astype(np.float32), np.arange(16, dtype=np.int32) % columns
    host.hold("cross_entropy.loss_forward", logits, labels, label_smoothing=0.1)


def test_smoothed_losses_of_the_largest_numbers(host):
    loss, _ = host.run("cross_entropy.loss_forward", np.full((4, 33), 3.4e38, np.float32), np.arange(4, dtype=np.int32), label_smoothing=0.1)
    np.testing.assert_allclose(loss, np.log(33), rtol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-32, 1e-6])
@pytest.mark.parametrize("value", [3.0, -1e9, 5.5e24, 1e-20])
@pytest.mark.parametrize("columns", [1, 4, 7, 1000])
def test_constant_rows_of_a_layer_norm(host, columns, value, epsilon):
    """No variance, whatever rounding leaves of the mean."""
    x, gamma, beta = np.full((3, columns), value, np.float32), normal(columns), normal(columns, seed=1)
    y, mu, rsigma, _ = host.run("norm.layernorm_forward", x, gamma, beta, epsilon=epsilon)
    assert (y == beta).all() and (mu == np.float32(value)).all()
    np.testing.assert_allclose(rsigma, epsilon ** -0.5, rtol=1e-6)


def test_sums_of_a_million_tokens(host):
    rows, one = 1_000_000, np.ones(1, np.float32)
    x = np.full((rows, 3), 0.1, np.float32)
    host.hold("quantize.per_tensor_transpose", x, one, out_dtype="e4m3", dbias=True)
    found, = host.run("grouped.sum_rows", x, np.array([rows - 1, 1], np.int32))
    np.testing.assert_allclose(found, np.float64(x[0]) * [[rows - 1], [1]], rtol=4e-6)


@pytest.mark.parametrize("at", ["a query", "a key"])
def test_attention_of_what_is_no_number(host, at):
    """Such a row is no number in all results and gradients, and not one that sees nothing."""
    q, k, v, dout = (normal(1, 8, 1, 16, seed=seed) for seed in range(4))
    (q if at == "a query" else k)[0, 3] = np.nan
    o, stats, *_ = host.run("attention.sdpa_forward", q, k, v, scale=0.25, with_stats=True)
    rows = slice(3, 4) if at == "a query" else slice(None)
    assert np.isnan(o[0, rows]).all() and np.isnan(stats.reshape(8)[rows]).all()
    assert np.isfinite(stats).sum() == (7 if at == "a query" else 0)
    operands = {"q": q, "k": k, "v": v, "o": o, "dout": dout, "stats": stats}
    given = [operands.get(operand["name"]) for operand in host.ops["attention.sdpa_backward"]["operands"]]
    dq, dk, dv = host.run("attention.sdpa_backward", *given, scale=0.25)[:3]
    assert np.isnan(dq[0, rows]).all() and np.isnan(dk).all() and np.isnan(dv).all()
