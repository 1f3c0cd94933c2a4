"""The last line of scripts/check counts what ran, and a crash without a report is a failure."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = """<testsuites><testsuite>
<testcase name="A" classname="S" status="run"/>
<testcase name="B" classname="S"><failure message="no"/></testcase>
<testcase name="C" classname="S" status="run"><skipped message="no CUDA device"/></testcase>
</testsuite></testsuites>"""


def totals(folder, *steps):
    ran = subprocess.run([sys.executable, str(ROOT / "scripts/totals.py"), str(folder), *steps],
                         capture_output=True, text=True)
    return ran.returncode, ran.stdout.splitlines()


def write(folder, text):
    (folder / "unit").mkdir()
    (folder / "unit/report.xml").write_text(text)


def test_counts_names_and_reasons(tmp_path):
    write(tmp_path, REPORT)
    code, lines = totals(tmp_path, "unit=1", "format=0")
    assert code == 1 and lines[-1] == "2 passed, 1 failed, 1 skipped"
    assert "FAILED unit: S.B" in lines and "skipped unit: S.C (no CUDA device)" in lines


def test_what_was_kept_is_counted_and_said_to_be(tmp_path):
    kept = '<properties><property name="kept" value="passed before"/></properties>'
    write(tmp_path, REPORT.replace('<testcase name="A" classname="S" status="run"/>', f'<testcase name="A" classname="S">{kept}</testcase>'))
    lines = totals(tmp_path, "unit=1", "format=0")[1]
    assert lines[-2].startswith("1 kept: ") and lines[-1] == "2 passed, 1 failed, 1 skipped"


def test_a_crash_that_wrote_no_failure_counts(tmp_path):
    write(tmp_path, REPORT.replace('<failure message="no"/>', ""))
    code, lines = totals(tmp_path, "unit=139")
    assert code == 1 and lines[-1] == "2 passed, 1 failed, 1 skipped"


def test_all_fine_is_exit_0(tmp_path):
    assert totals(tmp_path, "build=0") == (0, ["1 passed, 0 failed, 0 skipped"])
