"""What variants promise of their bits, held to it on this GPU: every one that promises a mode, forced on problems that it may compute in it
(conformance/modes.py: again, and items of a batch alone, beside others and beside all).

    modes.py [FAMILY ..]     by default every family
    modes.py --model         inside jax.jit, by kbj.modes: rows of layers of a model's size in batches of many sizes, and what that costs
"""

import os
import sys
import time

import launch_cost
import numpy as np
from conformance import capi, devices, modes, runner
from report import Report

BUNDLE = os.environ.get("KB_BUNDLE", str(capi.ROOT / "build/kernels.kb"))
SECONDS = int(os.environ.get("KB_SECONDS", 300)) - 30
ROWS = (1, 2, 7, 64, 129, 1000, 4096)
DRAWN = 6


def hold_promises(report, families):
    conformance = runner.Conformance(BUNDLE, devices.Cuda(), [capi.ROOT / "kernels"])
    launch_cost.frameworks_libraries()
    held, until = modes.Modes(conformance), time.monotonic() + SECONDS
    for mode in modes.MODES:
        run, late, idle, compared = 0, [], [], 0
        for op, variant in modes.promising(conformance, mode):
            if families and op["name"].split(".")[0] not in families:
                continue
            if time.monotonic() > until:
                late.append(variant["id"])
                continue
            outcome = held.run(op, variant, mode)
            run, compared = run + 1, compared + outcome.compared
            if not outcome.compared and not outcome.failures:
                idle.append(variant["id"])
            for failure in outcome.failures[:1]:
                report.hold(f"{mode}: {variant['id']}", False, failure)
        report.bar(f"{mode}: variants whose promise was tried", run - len(idle), 1, "variants", at_least=True)
        report.fact(f"{mode}: results whose bits were compared", compared)
        report.bar(f"{mode}: variants that there was no time for", len(late), 0)
        print(f"     {mode}: no problem of the mode for {len(idle)}: {idle[:40]}")


def repeats(report, kbj, jax, jnp, rng):
    """Training: every gradient of layers with biases has the same bits each time, with both modes."""
    x, w1, b1, w2, b2 = (jnp.asarray(rng.standard_normal(shape) / 10, jnp.bfloat16) for shape in
                         ((3000, 1000), (1000, 2008), (2008,), (2008, 520), (520,)))

    def loss(*given):
        with kbj.modes(deterministic=True, batch_invariant=True):
            return (kbj.mlp(*given).astype(jnp.float32) ** 2).sum()

    def step(*given):
        with kbj.modes(deterministic=True, batch_invariant=True):
            return jax.grad(loss, range(5))(*given)

    def plain(x, w1, b1, w2, b2):
        return ((jax.nn.gelu(x @ w1 + b1) @ w2 + b2) ** 2).sum()
    first, step = None, jax.jit(step)
    for turn in range(4):
        found = [np.asarray(g) for g in step(x, w1, b1, w2, b2)]
        first = first or found
        report.hold(f"gradients of an mlp, run {turn}: the same bits", all(a.tobytes() == b.tobytes() for a, b in zip(first, found)))
    right = jax.jit(jax.grad(plain, range(5)))(*(a.astype(jnp.float32) for a in (x, w1, b1, w2, b2)))
    errors = [float(jnp.abs(a.astype(jnp.float32) - b).max() / jnp.abs(b).max()) for a, b in zip(first, right)]
    report.bar("gradients of an mlp: largest error by the largest value", max(errors), 3e-2)


def layers(kbj, jax, jnp, rng):
    """{name: function of rows x[M, K]} with weights of its own, of drawn sizes."""
    made = {}
    for number in range(DRAWN):
        k, n = (int(size) * 8 for size in rng.integers(100, 1200, 2))
        dtype = (jnp.bfloat16, jnp.float16, jnp.float32)[number % 3]
        w, bias = (jnp.asarray(rng.standard_normal(shape) / 30, dtype) for shape in ((k, n), (n,)))
        back = jnp.asarray(rng.standard_normal((n, k)) / 30, dtype)
        kind = ("plain", "bias and gelu", "bias and relu")[number // 2 % 3]
        activation = {"plain": None, "bias and gelu": "gelu", "bias and relu": "relu"}[kind]
        given = None if kind == "plain" else bias
        made[f"dense, {kind}, {k} x {n}, {dtype.__name__}"] = k, dtype, lambda x, w=w, b=given, a=activation: kbj.dense(x, w, b, a)
        if number < 2:
            made[f"matmul by the transpose, {k} x {n}, {dtype.__name__}"] = k, dtype, lambda x, w=back: kbj.matmul(x, w.T)
            made[f"rms_norm, dense and softmax, {k} x {n}, {dtype.__name__}"] = k, dtype, lambda x, w=w, k=k: kbj.scaled_softmax(
                kbj.dense(kbj.rms_norm(x, jnp.ones(k, x.dtype)), w))
    return made


def model(report):
    import jax
    import jax.numpy as jnp
    import kbundle
    import kbundle.jax as kbj
    import peers
    kbundle.use(BUNDLE)
    rng, table = np.random.default_rng(int(os.environ.get("KB_SEED", time.time_ns() % 2**31))), []
    repeats(report, kbj, jax, jnp, rng)
    for name, (k, dtype, layer) in layers(kbj, jax, jnp, rng).items():
        def alike(x, layer=layer):
            with kbj.modes(deterministic=True, batch_invariant=True):
                return layer(x)
        x = jnp.asarray(rng.standard_normal((max(ROWS), k)), dtype)
        whole, compiled = np.asarray(jax.jit(alike)(x)), jax.jit(alike)
        other = [rows for rows in ROWS if np.asarray(compiled(x[:rows])).tobytes() != whole[:rows].tobytes()]
        other += [-rows for rows in ROWS if np.asarray(compiled(x[-rows:])).tobytes() != whole[-rows:].tobytes()]
        report.hold(f"{name}: rows have the same bits in every batch", not other, f"other bits of {other} rows")
        dy = jnp.asarray(rng.standard_normal((max(ROWS), whole.shape[-1])), whole.dtype)

        @jax.jit
        def back(x, dy, layer=layer):
            with kbj.modes(deterministic=True, batch_invariant=True):
                return jax.vjp(layer, x)[1](dy)[0]
        gradient = np.asarray(back(x, dy))
        other = [rows for rows in ROWS if np.asarray(back(x[:rows], dy[:rows])).tobytes() != gradient[:rows].tobytes()]
        report.hold(f"{name}: their gradients as well", not other, f"other bits of {other} rows")
        row = [name]
        for rows in (1, 64, 4096):
            sides = [peers.JaxSide(function, [(x[:rows],)], 20) for function in (alike, layer)]
            ours, usual = peers.by_turns(sides)
            row.append(f"{ours:.1f} / {usual:.1f}")
        table.append(row)
    report.table("Microseconds of a layer in jax.jit with both modes / without", ["layer", "1 row", "64 rows", "4096 rows"], table)


def main():
    if "--model" in sys.argv:
        report = Report("The same bits in batches of every size, in a model's layers")
        import peers
        peers.finish(report, lambda: model(report))
    report = Report("What variants promise of their bits: " + (", ".join(sys.argv[1:]) or "all"))
    hold_promises(report, sys.argv[1:])
    report.finish()


if __name__ == "__main__":
    main()
