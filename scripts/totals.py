"""Adds up the test results of scripts/check: names what failed and what was skipped and why, and
ends with the line `N passed, N failed, N skipped`.

Each argument after the folder is NAME=EXITCODE of one step. A step that wrote reports into
FOLDER/NAME/**/*.xml (JUnit's form, from GoogleTest or pytest) counts by them; any other step counts as
one test. A failed exit code without a failed test in the reports is a failure too: a crash writes none.
A passed test that has a property `kept` was not run: how many they are is said before the last line, which counts them as passed.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree


def cases(folder):
    for path in sorted(folder.rglob("*.xml")):
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                yield "failed", name, ""
            elif skipped is not None:
                yield "skipped", name, (skipped.get("message") or skipped.text or "").strip()
            elif case.get("status") != "notrun":
                yield "passed", name, ""
                if case.find("properties/property[@name='kept']") is not None:
                    yield "kept", name, ""


def main():
    results = pathlib.Path(sys.argv[1])
    counts = collections.Counter()
    for step in sys.argv[2:]:
        name, code = step.rsplit("=", 1)
        found = list(cases(results / name))
        for outcome, case, reason in found:
            counts[outcome] += 1
            if outcome == "failed":
                print(f"FAILED {name}: {case}")
            elif outcome == "skipped":
                print(f"skipped {name}: {case} ({reason.splitlines()[-1] if reason else 'no reason'})")
        if code != "0" and not any(outcome == "failed" for outcome, _, _ in found):
            counts["failed"] += 1
            print(f"FAILED {name}: exit code {code}")
        elif code == "0" and not found:
            counts["passed"] += 1
    if counts["kept"]:
        print(f"{counts['kept']} kept: they passed before with the very same inputs and were not run again; KB_TEST_ALL=1 runs them")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
