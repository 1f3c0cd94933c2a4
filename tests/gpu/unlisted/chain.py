"""Microseconds of one call inside a compiled program: a chain of equal calls, each of which waits for the one before (peers.chained, which
uses every result, or XLA would drop the calls), several functions in turns in one process; the least of the rounds, by the host's clock.
The host is at times late by more than a short program takes: of these there are more rounds, until each has run for a while."""

import time

import jax

import peers

CALLS, ROUNDS = 8, 7
SECONDS = 0.02  # of each program, in all rounds


def chained(function, calls=CALLS):
    """A program of `calls` calls one after another, of the operands of one."""
    program = peers.chained(function, calls)
    return lambda *arrays: program([arrays])


def in_turns(chains, arrays, rounds=ROUNDS, calls=CALLS):
    """Microseconds of a call for every name; `calls`: of each program; `rounds`: at least."""
    best = dict.fromkeys(chains, float("inf"))
    for chain in chains.values():
        jax.block_until_ready(chain(*arrays))
    ended, began = 0, time.perf_counter()
    while ended < rounds or time.perf_counter() - began < SECONDS * len(chains):
        for name, chain in chains.items():
            start = time.perf_counter()
            jax.block_until_ready(chain(*arrays))
            best[name] = min(best[name], 1e6 * (time.perf_counter() - start) / calls)
        ended += 1
    return best
