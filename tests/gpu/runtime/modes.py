"""What variants promise of their bits, held to it on this GPU: every one that promises a mode, forced on problems that it may compute in it
(conformance/modes.py: again, and items of a batch alone, beside others and beside all).

    modes.py [FAMILY ..]     by default every family
    modes.py --model         inside jax.jit, by kbj.modes: rows of layers of a model's size in batches of many sizes, and what that costs
"""

import os
import sys
import time

import flash
import launch_cost
import listed
import numpy as np
from conformance import attention, capi, devices, family, modes, paged, ragged, runner
from report import Report

BUNDLE = os.environ.get("KB_BUNDLE", str(capi.ROOT / "build/kernels.kb"))
SECONDS = int(os.environ.get("KB_SECONDS", 300)) - 30
ROWS = (1, 129, 4096)
attention.BATCH = 4  # of its cases, so that there are items alone, beside one other and beside all
WIDE = 1 << 20  # elements of a result of theirs


class Modes(modes.Modes):
    """On this GPU attention's problems are those of its own cases, whose heads are as wide as its kernels are for; and a library that refuses
    one, when a plan is made, has promised nothing of it."""

    def __init__(self, conformance):
        super().__init__(conformance)
        self._cases = []

    @staticmethod
    def is_large(inferred):
        return modes.largest(inferred) > WIDE

    def small(self, op, types):
        if not op["name"].startswith("attention."):
            return super().small(op, types)
        key = op["name"], tuple(sorted(types.items()))
        if key not in self._small:
            cases = self.cases(self.conformance.reference(op))
            self._small[key] = [self.problem(op, types, given, more) for _, name, given, more in cases if op["name"] == "attention." + name]
        return self._small[key]

    def cases(self, reference):
        if not self._cases:
            self._cases = [*flash.wide_cases(reference), *flash.whole_cases(reference), *flash.packed_cases(reference),
                           *ragged.cases(reference), *attention.few_queries(reference), *paged.cases(reference)]
        return self._cases

    @staticmethod
    def problem(op, types, given, attributes):
        _, described = family.operands_of(op, types, given() if callable(given) else given)
        return capi.Problem(op["name"], described, attributes | {t["attribute"]: types[t["name"]] for t in op["types"] if t["attribute"]})

    def legal(self, problem, mode):
        """Without libraries' variants that refuse it."""
        first = (problem, mode) not in self._explained
        found = super().legal(problem, mode)
        if first:
            [op] = [op for op in self.conformance.ops() if op["name"] == problem.op]
            providers = {variant["id"]: variant["provider"] for variant in op["variants"]}
            for name in [name for name, legal in found.items() if legal and providers[name] in listed.PROVIDERS]:
                found[name] = self.takes(problem, name, mode)
        return found

    def takes(self, problem, variant, mode):
        self.bundle.force(variant)
        try:
            capi.Plan(self.bundle, problem, self.device.kind, alignment=16, modes=mode)
        except capi.KbError:
            return False
        finally:
            self.bundle.clear_policy()
        return True


def hold_promises(report, families):
    conformance = runner.Conformance(BUNDLE, devices.Cuda(), [capi.ROOT / "kernels"])
    launch_cost.frameworks_libraries()
    held, until = Modes(conformance), time.monotonic() + SECONDS
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


def layers(kbj, jnp, rng):
    """(name, columns, dtype, function of rows x[M, columns]) with weights of its own, of drawn sizes."""
    for dtype, activation in ((jnp.bfloat16, None), (jnp.float16, "gelu"), (jnp.float32, "relu")):
        k, n = (int(size) * 8 for size in rng.integers(100, 1200, 2))
        w, bias = (jnp.asarray(rng.standard_normal(shape) / 30, dtype) for shape in ((k, n), (n,)))
        bias = None if activation is None else bias
        yield f"dense, {activation}, {k} x {n}, {dtype.__name__}", k, dtype, lambda x, w=w, b=bias, a=activation: kbj.dense(x, w, b, a)
    yield f"rms_norm, dense and softmax, {k} x {n}, bfloat16", k, jnp.bfloat16, lambda x, w=w.astype(jnp.bfloat16), k=k: kbj.scaled_softmax(
        kbj.dense(kbj.rms_norm(x, jnp.ones(k, x.dtype)), w))


def model(report):
    import jax
    import jax.numpy as jnp
    import kbundle
    import kbundle.jax as kbj
    import peers
    kbundle.use(BUNDLE)
    rng, table = np.random.default_rng(int(os.environ.get("KB_SEED", time.time_ns() % 2**31))), []
    repeats(report, kbj, jax, jnp, rng)
    for name, k, dtype, layer in layers(kbj, jnp, rng):
        def alike(x, layer=layer):
            with kbj.modes(deterministic=True, batch_invariant=True):
                return layer(x)
        x = jnp.asarray(rng.standard_normal((max(ROWS), k)), dtype)
        whole, compiled = np.asarray(jax.jit(alike)(x)), jax.jit(alike)
        other = [rows for rows in ROWS if np.asarray(compiled(x[:rows])).tobytes() != whole[:rows].tobytes()]
        other += [-rows for rows in (129,) if np.asarray(compiled(x[-rows:])).tobytes() != whole[-rows:].tobytes()]
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
        for rows in (64, 4096):
            sides = [peers.JaxSide(function, [(x[:rows],)], 20) for function in (alike, layer)]
            ours, usual = peers.by_turns(sides)
            row.append(f"{ours:.1f} / {usual:.1f}")
        table.append(row)
    report.table("Microseconds of a layer in jax.jit with both modes / without", ["layer", "64 rows", "4096 rows"], table)


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
