"""The same work in several threads at once, for tests of what threads do to one another."""

import threading
from concurrent.futures import ThreadPoolExecutor

THREADS = 8


def at_once(work, count=THREADS):
    """Calls work(number) in each thread, none before all are there, and waits for all; raises what the first of them raised."""
    met = threading.Barrier(count)

    def begin(number):
        met.wait()
        work(number)
    with ThreadPoolExecutor(count) as pool:
        for started in [pool.submit(begin, number) for number in range(count)]:
            started.result()
