"""Microseconds of one call inside a compiled program: a chain of equal calls, each of which waits for the one before (peers.chained, which
uses every result, or XLA would drop the calls), several functions in turns in one process; the least of the rounds, by the host's clock."""

import time

import jax

import peers

CALLS, ROUNDS = 8, 7


def chained(function, calls=CALLS):
    """A program of `calls` calls one after another, of the operands of one."""
    program = peers.chained(function, calls)
    return lambda *arrays: program([arrays])


def in_turns(chains, arrays, rounds=ROUNDS, calls=CALLS):
    """Microseconds of a call for every name; `calls`: of each program."""
    best = dict.fromkeys(chains, float("inf"))
    for chain in chains.values():
        jax.block_until_ready(chain(*arrays))
    for _ in range(rounds):
        for name, chain in chains.items():
            start = time.perf_counter()
            jax.block_until_ready(chain(*arrays))
            best[name] = min(best[name], 1e6 * (time.perf_counter() - start) / calls)
    return best
