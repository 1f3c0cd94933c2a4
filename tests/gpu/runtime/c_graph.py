"""The C program that users copy (tests/install/project/use_graph.c): a plan whose very first launch is captured on a stream of the program's
own, replayed on other numbers. It was built elsewhere, and needs the driver alone."""

import pathlib
import re
import subprocess

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "build/release/kb_c_graph"
REPLAYS, MOST = 2, 1e-7


def main():
    report = Report("a CUDA graph in C")
    done = subprocess.run([PROGRAM, ROOT / "build/kernels.kb"], capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="\n", flush=True)
    report.hold("the program ends well", done.returncode == 0, f"code {done.returncode}: {done.stderr.strip()}")
    report.fact("variant", done.stdout.split("\n")[0])
    errors = re.findall(r"^replay (\d+): largest error (\S+)$", done.stdout, re.M)
    report.hold("each replay is there", [int(replay) for replay, _ in errors] == list(range(REPLAYS)))
    for replay, error in errors:
        report.bar(f"replay {replay}: largest error", float(error), MOST)
    report.finish()


if __name__ == "__main__":
    main()
