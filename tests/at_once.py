"""The same work in several threads at once, for tests of what threads do to one another."""

from concurrent.futures import ThreadPoolExecutor

THREADS = 8


def at_once(work, threads=THREADS):
    """Calls work() in each thread and waits for all; raises what the first of them raised."""
    with ThreadPoolExecutor(threads) as pool:
        for started in [pool.submit(work) for _ in range(threads)]:
            started.result()
