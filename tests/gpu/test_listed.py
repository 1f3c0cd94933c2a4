"""What the GPU sections compare of large listed problems: right results pass, and a wrong one is seen, of every result."""

import os
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import listed  # noqa: E402
from conformance import capi, devices, runner  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def conformance():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    return runner.Conformance(BUNDLE, devices.Host(), [ROOT / "kernels"])


def wrong(array):
    """The array with another last row."""
    array = np.atleast_1d(array.copy())
    row = array.reshape(-1, array.shape[-1])[-1]
    row[...] = 255 - row if row.dtype == np.uint8 else (row.astype(np.float32) * 1.5 + 1).astype(row.dtype)
    return array


@pytest.mark.parametrize("name", ["matmul.matmul", "attention.sdpa_packed_forward", "attention.sdpa_packed_backward"])
def test_a_wrong_result_of_a_listed_problem_is_seen(conformance, name):
    op = next(op for op in conformance.ops() if op["name"] == name)
    problem, operands, attributes = listed.problems(conformance.bundle, name)[0]
    variant = conformance.bundle.explain(problem, capi.HOST)["chosen"]
    case = listed.CASES[name.split(".")[0]](conformance, problem, operands, attributes)
    found = listed.two_launches(conformance.device, conformance.bundle, problem, variant, case.operands)
    assert not list(case.judge(op, found))
    for number, right in enumerate(found.launches[1]):
        if right is not None:
            found.launches[1][number] = wrong(right)
            assert list(case.judge(op, found)), op["results"][number]["name"]
            found.launches[1][number] = right
    case.free()
