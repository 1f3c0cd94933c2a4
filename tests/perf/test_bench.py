"""Promise: kbundle_bench gives every row a value or a reason, judges by its bars, and leaves nothing behind."""

import os
import pathlib

import pytest
from cli.command import Command


@pytest.fixture(scope="module")
def bench(command, tmp_path_factory):
    """The program beside the command, with a home of its own."""
    folder = tmp_path_factory.mktemp("bench")
    return Command(str(pathlib.Path(command).with_name("kbundle_bench")), folder, folder)


@pytest.fixture(scope="module")
def rows(bench, bundle):
    done = bench(bundle, "--rounds", "5", "--json")
    assert done.code == 0, done.err
    return {row["name"]: row for row in done.json["rows"]}


def test_every_row_has_a_value_or_a_reason(rows):
    for name in ("open and verify, this bundle", "open and verify, 10,000 variants", "1,000 selections",
                 "resident before the first load", "blob read, base frame", "host plan, made from the file",
                 "host launch beyond the bare call", "file to ready function, base frame",
                 "file to ready function, delta with cold base", "GPU launch beyond the bare call"):
        row = rows[name]
        assert (row["value"] is not None) != bool(row.get("skipped")), row
        if row["value"] is not None and row["bar"] is not None:
            assert row["pass"] is (row["value"] <= row["bar"])
    assert rows["open and verify, 10,000 variants"]["value"] > rows["open and verify, this bundle"]["value"] > 0


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/version"), reason="there is an NVIDIA driver here")
def test_without_a_driver_it_says_so(rows):
    assert rows["file to ready function, base frame"]["skipped"] == "no NVIDIA driver"


def test_with_a_driver_it_measures_the_gpu_rows(bench, gpu_bundle, driver):
    done = bench(gpu_bundle, "--rounds", "3", "--json", env=driver)
    assert done.code == 0, done.err
    rows = {row["name"]: row for row in done.json["rows"]}
    for name in ("file to ready function, base frame", "file to ready function, delta with cold base",
                 "GPU plan, made from the file", "GPU launch, p50", "bare cuLaunchKernel, p50",
                 "GPU launch beyond the bare call"):
        assert rows[name]["value"] is not None, rows[name]
    assert "gpu.twice" in rows["GPU launch, p50"]["note"]


def test_it_prints_the_estimator_and_fails_a_check_only_by_a_missed_bar(bench, bundle):
    done = bench(bundle, "--rounds", "3", "--check")
    assert "median of 3 interleaved rounds" in done.out
    assert done.code == (1 if "FAIL" in done.out else 0)


def test_it_leaves_no_file_behind(bench, bundle, tmp_path):
    assert bench(bundle, "--rounds", "3", env={"TMPDIR": str(tmp_path)}).code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["a", "b"], ["a", "--rounds", "two"], ["a", "--round", "3"]])
def test_a_wrong_command_line_is_exit_code_2_and_the_usage(bench, words):
    done = bench(*words)
    assert done.code == 2 and done.out == "" and "usage: kbundle_bench FILE" in done.err


def test_a_file_that_is_not_there_is_named(bench, tmp_path):
    done = bench(tmp_path / "none.kb")
    assert done.code == 1 and "none.kb" in done.err
