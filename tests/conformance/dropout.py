"""What must hold of dropout whose generator nobody else knows: the mask is recovered from results, and everything else follows.

With q and k of zeros every key that a query sees has the same probability, and with v the identity over as many keys as v
has columns, o is that probability where the key is kept: each launch shows a block of the mask.
"""

import numpy as np

from conformance import capi, devices, runner


class Dropout:
    """Both ops on one problem: bshd, as many keys as queries, as many heads of keys as of queries, a dropout_state last."""

    def __init__(self, bundle, device, operands, attributes):
        self.device = device
        (self.dtype, (self.batch, self.tokens, self.heads, self.depth)) = operands[0]
        attributes = {k: v for k, v in attributes.items() if k not in ("with_stats", "deterministic", "bias_gradient")}
        self.rate, self.scale, self.causal = attributes["dropout"], attributes["scale"], attributes.get("mask", "none") == "causal"
        ops = {op["name"]: op for op in bundle.describe()["ops"]}
        o, stats = operands[0], ("f32", (self.batch, self.heads, self.tokens))
        self.forward = self.launcher(bundle, ops["attention.sdpa_forward"], operands, attributes | {"with_stats": True})
        self.backward = self.launcher(bundle, ops["attention.sdpa_backward"], [*operands[:3], o, o, stats, *operands[3:]], attributes)

    def launcher(self, bundle, op, operands, attributes):
        """run(arrays) of one plan: what is drawn must follow the state on the device, not the plan."""
        problem = capi.Problem(op["name"], operands, attributes)
        plan, inferred = capi.Plan(bundle, problem, self.device.kind), bundle.infer(problem, self.device.kind)

        def run(*arrays):
            given = [None if o is None else np.asarray(a).astype(devices.NUMPY[o[0]]) for o, a in zip(operands, arrays)]
            launch = runner.Launch(self.device, op, problem, inferred, given, 0)
            try:
                return [x if x is None else x.astype(np.float64) for x in launch.run(plan)]
            finally:
                launch.free()
        run.variant = plan.variant
        return run

    def with_state(self, arrays, state):
        """Operands of either op: what is absent between the arrays and the state is None."""
        return [*arrays, *[None] * 3, state]

    def mask(self, state):
        """kept[batch, head, query, key]; False where a query does not see the key. Asserts that kept ones are scaled as they must be."""
        shape = (self.batch, self.tokens, self.heads, self.depth)
        nothing, kept = np.zeros(shape, devices.NUMPY[self.dtype]), np.zeros((self.batch, self.heads, self.tokens, self.tokens), bool)
        seen = np.arange(1, self.tokens + 1) if self.causal else np.full(self.tokens, self.tokens)
        wanted = 1 / seen / (1 - self.rate)
        for first in range(0, self.tokens, self.depth):
            count = min(self.depth, self.tokens - first)
            v = nothing.copy()
            v[:, np.arange(first, first + count), :, np.arange(count)] = 1
            o = np.swapaxes(self.forward(*self.with_state([nothing, nothing, v], state))[0], 1, 2)[..., :count]
            there = o != 0
            assert (np.abs(o / wanted[:, None] - 1) < 0.02)[there].all(), "a kept element is not 1 / (1 - rate) times as large"
            kept[..., first:first + count] = there
        return kept

    def visible(self):
        every = np.ones((self.tokens, self.tokens), bool)
        return np.tril(every) if self.causal else every

    def errors(self, state, kept, seed, heads):
        """{result: largest error relative to the tensor's largest magnitude} of forward and backward under the mask that was recovered."""
        rng = np.random.default_rng(seed)
        q, k, v, dout = (rng.standard_normal((self.batch, self.tokens, self.heads, self.depth)).astype(np.float32)
                         .astype(devices.NUMPY[self.dtype]).astype(np.float64) for _ in range(4))
        o, stats = self.forward(*self.with_state([q, k, v], state))
        dq, dk, dv = self.backward(*self.with_state([q, k, v, o, dout, stats], state))[:3]
        worst = dict.fromkeys(("o", "dq", "dk", "dv"), 0.0)
        for b, h in heads:
            wanted = self.formula(*(x[b, :, h] for x in (q, k, v, o, dout)), kept[b, h])
            for name, found, want in zip(worst, (o, dq, dk, dv), wanted):
                worst[name] = max(worst[name], np.abs(found[b, :, h] - want).max() / np.abs(want).max())
        return worst

    def formula(self, q, k, v, o, dout, kept):
        s = np.where(self.visible(), float(np.float32(self.scale)) * q @ k.T, -np.inf)
        p = np.exp(s - s.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        keep = kept / (1 - self.rate)
        ds = p * ((dout @ v.T) * keep - (o * dout).sum(axis=1, keepdims=True)) * self.scale
        return (p * keep) @ v, ds @ k, ds.T @ q, (p * keep).T @ dout


def judge(dropout, states, limit, heads):
    """(name, whether it holds, what was found) of everything; states: three, of which the second has another offset and the third
    another seed."""
    yield "forward and backward", True, f"{dropout.forward.variant}, {dropout.backward.variant}"
    visible, rate = dropout.visible(), dropout.rate
    first = dropout.mask(states[0])
    every = visible.sum() * dropout.batch * dropout.heads
    share, allowed = first.sum() / every, 5 * np.sqrt(rate * (1 - rate) / every)
    yield "the share that is kept", abs(share - (1 - rate)) < allowed, f"{share:.5f} of {1 - rate:.5f} +- {allowed:.5f}"
    yield "nothing hidden is kept", not (first & ~visible).any(), ""
    yield "the same state, the same mask", np.array_equal(first, dropout.mask(states[0])), ""
    for name, state in zip(("another offset", "another seed"), states[1:]):
        differ = (first != dropout.mask(state)).sum() / every
        yield f"{name}, another mask", abs(differ - 2 * rate * (1 - rate)) < 0.02, f"{differ:.4f} differ, {2 * rate * (1 - rate):.4f} would by chance"
    images = first.reshape(-1, *visible.shape)
    if len(images) > 1:
        alike = (images[0] != images[-1])[visible].mean()
        yield "another mask for each head", abs(alike - 2 * rate * (1 - rate)) < 0.02, f"{alike:.4f} differ"
    for name, error in dropout.errors(states[0], first, 1, heads).items():
        yield f"{name} is that of the mask", error < limit, f"{error:.2g} of {limit:.2g}"
