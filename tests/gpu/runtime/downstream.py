"""The library outside the tree, called from JAX on this GPU: the very test file that runs on the CPU."""

import os
import pathlib
import subprocess
import sys

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]


def main():
    report = Report("downstream")
    env = dict(os.environ, KB_DOWNSTREAM_BUNDLE=str(ROOT / "build/downstream.kb"), JAX_PLATFORMS="cuda")
    child = subprocess.run([sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "tests/downstream"],
                           cwd=ROOT, env=env, capture_output=True, text=True)
    print(child.stdout[-3000:])
    report.hold("tests/downstream passes on this GPU", child.returncode == 0 and "passed" in child.stdout,
                child.stdout.strip().splitlines()[-1] if child.stdout.strip() else child.stderr[-300:])
    report.finish()


if __name__ == "__main__":
    main()
