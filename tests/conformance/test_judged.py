"""Promise: a result is right without being judged again only where it is, bit for bit, what was judged right before: of the same op,
attributes, operands and tolerances, by the same reference."""

import ast

import numpy as np
import pytest

from conformance import judged

OP = {"name": "sum.sum", "operands": [{"name": "x"}], "results": [{"name": "y"}], "tolerances": [{"ulps": 1}]}


class Problem:
    operands, attributes = [("f32", (3,))], {"scale": 2.0}


class Outcome:
    def __init__(self):
        self.failures = []


class Counted(judged.Judge):
    """Judges by equality, and counts how often."""

    count = 0

    def judge(self, outcome, op, where, found, wanted):
        self.count += 1
        outcome.failures += [f"{where}: {a}" for a, b in zip(found, wanted) if not np.array_equal(a, b)]


def verdict(judge, found, op=OP, problem=Problem, operands=(1, 2, 3), wanted=(2, 4, 6)):
    outcome, arrays = Outcome(), [np.array(operands, np.float32), None]
    case = judged.Wanted(lambda: [np.array(wanted, np.float64)], op, problem, arrays)
    judge.judge_unless_known(outcome, op, "it", [np.array(found, np.float32), None], case)
    return not outcome.failures


@pytest.fixture
def judge(tmp_path, monkeypatch):
    monkeypatch.setenv("KBUNDLE_CACHE", str(tmp_path))
    monkeypatch.delenv("KB_TEST_ALL", raising=False)
    return fresh()


def fresh():
    """As another run has it."""
    made = Counted()
    made.right = judged.Right("sum")
    return made


def test_the_same_bits_are_judged_once(judge):
    assert verdict(judge, (2, 4, 6)) and verdict(judge, (2, 4, 6)) and judge.count == 1
    again = fresh()
    assert verdict(again, (2, 4, 6)) and again.count == 0


def test_a_wrong_result_is_judged_each_time(judge):
    assert not verdict(judge, (2, 4, 7)) and not verdict(judge, (2, 4, 7)) and not verdict(fresh(), (2, 4, 7)) and judge.count == 2


def test_whatever_is_another_is_judged(judge):
    assert verdict(judge, (2, 4, 0), wanted=(2, 4, 0))
    other = type("Other", (), {"operands": Problem.operands, "attributes": {"scale": 3.0}})
    for how in ({"found": (2, 4, np.copysign(0.0, -1))}, {"operands": (1, 2, 4)}, {"problem": other}, {"op": OP | {"tolerances": [{"ulps": 2}]}}):
        count = judge.count
        verdict(judge, **{"found": (2, 4, 0), "wanted": (2, 4, 0)} | how)
        assert judge.count == count + 1, how


def test_another_reference_or_all_again_knows_nothing(judge, monkeypatch):
    verdict(judge, (2, 4, 6))
    sources = judged.sources()
    monkeypatch.setattr(judged, "sources", lambda: [*sources[1:], "changed"])
    assert not judged.Right("sum").known
    monkeypatch.setattr(judged, "sources", lambda: sources)
    assert judged.Right("sum").known and not judged.Right("norm").known
    monkeypatch.setenv("KB_TEST_ALL", "1")
    assert not judged.Right("sum").known


def test_every_file_that_a_reference_is_made_of_decides():
    """Those named reference*.py do: what they import of kernels/ are such files again."""
    own = {path.stem for path in judged.KERNELS.rglob("*.py")} | {path.stem for path in judged.HERE.parent.glob("*")}
    found = list(judged.KERNELS.rglob("reference*.py"))
    assert len(found) > 8
    for path in found:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
            others = [name for name in names if name.split(".")[0] in own and not name.startswith("reference")]
            assert not others, f"{path}: {others} decide what is right, and judged.sources() does not have them"


def test_without_a_store_everything_is_judged():
    judge = Counted()
    assert verdict(judge, (2, 4, 6)) and verdict(judge, (2, 4, 6)) and judge.count == 2
