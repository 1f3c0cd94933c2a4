"""Results that were judged right are right again where they are the same bits of the same problem: neither the reference nor the comparison is
made a second time. Every variant is planned and launched all the same, so a change of the library that gives one other bit is judged anew.

A judgement is remembered by a digest of all that made it: the op's interface and tolerances, the attributes, the operands, the results, and
the store's name, of the references and the comparison themselves, NumPy and this machine. In kbundle's cache, as kept.py says; wrong
results are never remembered.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import sys

import compiled
import kept
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = HERE.parents[1] / "kernels"


class Wanted:
    """What a case's results should be, made when asked for, and its own digest."""

    def __init__(self, make, op, problem, arrays):
        self._make, self._about, self._arrays = make, [op[part] for part in ("name", "operands", "results", "tolerances")], arrays
        self._problem = problem

    @functools.cached_property
    def results(self):
        with np.errstate(all="ignore"):
            return self._make()

    @functools.cached_property
    def _digest(self):
        made = hashlib.sha256(json.dumps([self._about, self._problem.operands, sorted(self._problem.attributes.items())], default=str).encode())
        return digest_of(made, self._arrays)

    def digest(self, found):
        """Of the case and of results of it."""
        return digest_of(self._digest.copy(), found).hexdigest()


def digest_of(made, arrays):
    for array in arrays:
        made.update(b"none" if array is None else f"{array.dtype} {array.shape};".encode() + np.ascontiguousarray(array).tobytes())
    return made


def sources():
    files = sorted([*HERE.glob("*.py"), *KERNELS.rglob("reference*.py")])
    packages = [importlib.metadata.version(package) for package in ("numpy", "ml_dtypes")]
    return [*(kept.digest(path) for path in files), *packages, *map(str, compiled.cpu()), sys.version]


class Right:
    """The judgements of one family's tests."""

    def __init__(self, family):
        name = hashlib.sha256("\n".join([family, *sources()]).encode()).hexdigest()
        self.path, self.known = kept.folder() / f"judged.{name}", set()
        if os.environ.get("KB_TEST_ALL") != "1" and self.path.exists():
            self.known = set(self.path.read_text().split())  # of a line cut short no digest is
            self.path.touch()

    def knows(self, digest):
        return digest in self.known

    def add(self, digest):
        self.known.add(digest)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(f"{digest}\n")


class Judge:
    """What classes that judge have in common. right: a Right, or None where every result is to be judged."""

    right = None

    def judge_unless_known(self, outcome, op, where, found, wanted):
        digest = self.right and wanted.digest(found)
        if self.right and self.right.knows(digest):
            return
        before = len(outcome.failures)
        self.judge(outcome, op, where, found, wanted.results)
        if self.right and len(outcome.failures) == before:
            self.right.add(digest)
