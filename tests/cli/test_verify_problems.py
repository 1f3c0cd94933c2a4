"""Promise: verify --problems says of each problem of a file whether the bundle has exact code for it, quickly, and of a
line that it cannot use which one and why."""

import json
import resource
import statistics

import pytest


def line(shape="4,33", op="tiny.scale", **attributes):
    return json.dumps({"op": op, "operands": {"x": "f32[%s]" % shape}, "attributes": attributes}) + "\n"


@pytest.fixture
def ask(kbundle, bundle, tmp_path):
    def run(text, target="x86-64-v3", *more):
        path = tmp_path / "problems.jsonl"
        path.write_text(text)
        return kbundle("verify", bundle, "--problems", path, "--target", target, "--json", *more)
    return run


def test_problems_with_code_are_fine_and_only_they_are_checked(ask):
    done = ask(line() + "\n" + line("7,8,9", factor=3.0) + line("1"))
    assert done.code == 0
    assert done.json["problems_checked"] == 3 and done.json["missing"] == []


def test_a_problem_without_exact_code_is_named(ask):
    done = ask(line() + line("5,6"), "sm_90a")
    assert done.code == 1
    assert [gap["problem"] for gap in done.json["missing"]] == [
        "tiny.scale(x=f32[4,33], offset=absent; factor=2)", "tiny.scale(x=f32[5,6], offset=absent; factor=2)"]


def test_strict_asks_for_code_that_ran(ask):
    done = ask(line(), "x86-64-v3", "--strict")
    assert done.code == 1 and "strict" in done.json["missing"][0]["reason"]


@pytest.mark.parametrize("bad, wanted", [
    (line()[:30], "no JSON"),
    ("[1, 2]\n", "no object"),
    (line(op="tiny.scal"), "tiny.scale"),
    (line(factr=2.0), "factor"),
    (line("4,x"), "f32[4,x]"),
    (json.dumps({"op": "tiny.scale", "operands": {"y": "f32[4]"}}), "operand y"),
    (json.dumps({"op": "tiny.scale", "operands": {"x": 4}}), "no text"),
    (json.dumps({"op": "tiny.scale", "operands": {}}), "x"),
    (json.dumps({"op": "tiny.scale", "operands": {"x": "f32[4]"}, "attributes": {"factor": None}}), "null"),
])
def test_a_line_that_is_no_problem_is_named_by_its_number(ask, bad, wanted):
    done = ask(line() + bad)
    assert done.code == 1 and done.json["ok"] is False
    told = done.json["error"]["message"]
    assert "problems.jsonl:2" in told and wanted in told


def test_a_missing_file_and_a_missing_target_are_said(kbundle, bundle, tmp_path):
    assert kbundle("verify", bundle, "--problems", tmp_path / "none.jsonl", "--target", "sm_90a").code == 1
    done = kbundle("verify", bundle, "--problems", tmp_path / "none.jsonl")
    assert done.code == 2 and "--target" in done.err


def test_a_thousand_problems_take_fifty_milliseconds_at_most(kbundle, bundle, tmp_path):
    path = tmp_path / "many.jsonl"
    path.write_text("".join(line("%d,%d" % (i % 97 + 1, i + 1), factor=i / 8) for i in range(1000)))

    def processor_time(*arguments):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert kbundle("verify", bundle, *arguments).code == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bytes_only, problems = [], []
    for _ in range(7):
        bytes_only.append(processor_time())
        problems.append(processor_time("--problems", path, "--target", "x86-64-v3"))
    assert statistics.median(problems) - statistics.median(bytes_only) <= 0.05
