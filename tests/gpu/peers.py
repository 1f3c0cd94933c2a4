"""How kbundle's captured launches and JAX programs are timed against each other, and how their errors are compared.

Every side works on the same arrays in device memory, several sets of them by turns. A JAX program is one jitted function of N
equal calls, chained by optimization barriers so that XLA neither merges nor overlaps them; its time is that of the host's clock
over back-to-back runs, ended by one wait. kbundle's side is one captured graph of N launches, timed by events. Sides take turns,
burst by burst, and the median of the bursts counts.
"""

import statistics
import time
import traceback

import numpy as np

ROUNDS, BURST_SECONDS = 9, 0.02
NOISE = 1.02


def chained(function, calls):
    """A program of `calls` calls of function(*operands), any pytree of results, over sets of operands by turns."""
    import jax
    import jax.numpy as jnp

    def program(sets):
        kept = []
        for i in range(calls):
            operands = sets[i % len(sets)]
            if kept:
                operands, kept[-1] = jax.lax.optimization_barrier((operands, kept[-1]))
            kept.append(jax.tree.leaves(function(*operands)))
        # Every result is used, or XLA would drop it from the barriers; one small kernel does that.
        kept = jax.lax.optimization_barrier(kept)
        return jnp.stack([jnp.ravel(result)[0].astype(jnp.float32) for results in kept for result in results])

    return jax.jit(program)


class JaxSide:
    """Bursts of one program."""

    def __init__(self, function, sets, calls):
        import jax
        self.jax, self.calls, self.sets = jax, calls, sets
        self.program = chained(function, calls)
        jax.block_until_ready(self.program(sets))
        self.repeats = 3
        us = min(self.burst() for _ in range(2)) * calls
        self.repeats = max(3, int(BURST_SECONDS * 1e6 / us))

    def burst(self):
        start = time.perf_counter()
        for _ in range(self.repeats):
            result = self.program(self.sets)
        self.jax.block_until_ready(result)
        return (time.perf_counter() - start) / self.repeats / self.calls * 1e6


class GraphSide:
    """Launches through launch(i), i the number of the set, in a captured graph of `calls`."""

    def __init__(self, cuda, launch, set_count, calls):
        self.cuda, self.calls = cuda, calls
        self.graph = cuda.capture(lambda: [launch(i % set_count) for i in range(calls)])
        us = min(cuda.graph_us(self.graph, 3))
        self.repeats = max(3, int(BURST_SECONDS * 1e6 / us))

    def burst(self):
        return statistics.mean(self.cuda.graph_us(self.graph, self.repeats)) / self.calls


def by_turns(sides):
    """Median microseconds of a call of each side; None where a side is None."""
    samples = [[] for _ in sides]
    for _ in range(ROUNDS):
        for side, found in zip(sides, samples):
            if side is not None:
                found.append(side.burst())
    return [statistics.median(found) if found else None for found in samples]


def relative_error(found, wanted):
    """Root of the mean square, relative to that of what is wanted; infinite where something is not finite."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    if not np.isfinite(found).all():
        return float("inf")
    return float(np.linalg.norm(found - wanted) / max(np.linalg.norm(wanted), 1e-30))


def attempt(what, make, refused):
    """make(), or None with the reason among refused."""
    try:
        return make()
    except Exception as error:
        refused[what] = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        return None


def finish(report, function, refused=None, last=lambda: None):
    """Runs the section and writes what it found, whatever happens in it: what was refused, and what last() adds."""
    try:
        try:
            function()
        finally:
            for what, why in (refused or {}).items():
                report.fact(f"not measured: {what}", why)
            last()
    except Exception as error:
        traceback.print_exc()
        report.hold("the section ran to its end", False, f"{type(error).__name__}: {error}")
    report.finish()


def number(value, digits=1):
    return "" if value is None else f"{value:.{digits}f}"
