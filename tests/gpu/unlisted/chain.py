"""Microseconds of one call inside a compiled program: a chain of equal calls, each of which waits for the one before, several
functions in turns in one process; the least of the rounds, by the host's clock."""

import time

import jax

CALLS, ROUNDS = 12, 7


def chained(function, calls=CALLS):
    """A program of `calls` calls one after another. A barrier makes each wait: it is free, and nothing can be hoisted over it."""
    def program(*arrays):
        for _ in range(calls):
            results = function(*arrays)
            arrays, results = jax.lax.optimization_barrier((arrays, results))
        return results
    return jax.jit(program)


def compiled_in(function, arrays):
    """(the chain, milliseconds of its first call)."""
    chain, start = chained(function), time.perf_counter()
    jax.block_until_ready(chain(*arrays))
    return chain, 1e3 * (time.perf_counter() - start)


def in_turns(chains, arrays, rounds=ROUNDS):
    """Microseconds of a call for every name."""
    best = dict.fromkeys(chains, float("inf"))
    for chain in chains.values():
        jax.block_until_ready(chain(*arrays))
    for _ in range(rounds):
        for name, chain in chains.items():
            start = time.perf_counter()
            jax.block_until_ready(chain(*arrays))
            best[name] = min(best[name], 1e6 * (time.perf_counter() - start) / CALLS)
    return best
