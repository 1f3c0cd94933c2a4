"""`kbundle_bench` on this machine: the loader's own costs against their bars."""

import json
import pathlib
import subprocess

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    report = Report("bench")
    command = ["build/release/kbundle_bench", "build/kernels.kb", "--check"]
    plain = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(plain.stdout + plain.stderr)
    found = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True)
    try:
        report.fact("kbundle_bench --json", json.loads(found.stdout))
    except json.JSONDecodeError as error:
        report.hold("kbundle_bench --json is JSON", False, f"{error}: {found.stdout[:200]} {found.stderr[:200]}")
    report.hold("kbundle_bench: every bar holds", plain.returncode == 0, f"code {plain.returncode}")
    report.finish()


if __name__ == "__main__":
    main()
