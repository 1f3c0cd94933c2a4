"""`kbundle bench` on this machine: the loader's own costs against their bars."""

import json
import pathlib
import subprocess

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    report = Report("bench")
    command = ["build/release/kbundle", "bench", "--check", "build/kernels.kb"]
    plain = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(plain.stdout + plain.stderr)
    found = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True)
    try:
        report.fact("kbundle bench --json", json.loads(found.stdout))
    except json.JSONDecodeError as error:
        report.hold("kbundle bench --json is JSON", False, f"{error}: {found.stdout[:200]} {found.stderr[:200]}")
    report.hold("kbundle bench: every bar holds", plain.returncode == 0, f"code {plain.returncode}")
    report.finish()


if __name__ == "__main__":
    main()
