"""The commands of the pages that need a GPU, as they stand there, in a folder of their own; measuring ends after a budget."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/readme"))
import pages  # noqa: E402
from classes import class_of  # noqa: E402

PROBLEM = '{"op": "softmax.scaled_forward", "operands": {"x": "f32[128,128]"}, "attributes": {"scale": 1.0}}\n'
# What a form asks for, and what keeps a command that would measure for hours to seconds.
FORMS = (("MODEL.jsonl [PATH...]", "model.jsonl kernels/softmax"), ("OUT.kb", "model.kb"), ("PATH...", "kernels/softmax"), ("-o FILE", "-o gpu.json"))
SHORTER = {"tune": " --budget 20s --out records", "algorithms": " --candidates 1 --near 0 -o algorithms.jsonl", "test": "", "profile": "",
           "specialize": ""}


def commands():
    for page in pages.NAMES:
        for said in pages.said(page):
            if class_of(said) == "gpu":
                text = said.text.replace("--target T", "--target sm_90a")
                for form, real in FORMS:
                    text = text.replace(form, real)
                text = text.replace("algorithms kernels/softmax", "algorithms kernels/matmul")
                yield said, text + SHORTER[text.split()[1]]


def main():
    report = Report("pages")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "kernels", pathlib.Path(folder) / "kernels")
        (pathlib.Path(folder) / "model.jsonl").write_text(PROBLEM)
        env = dict(os.environ, PATH=f"{ROOT / 'build/release'}{os.pathsep}{os.environ['PATH']}", KBUNDLE_PYTHON=sys.executable)
        for said, text in commands():
            done = subprocess.run(["bash", "-euc", text], cwd=folder, env=env, capture_output=True, text=True)
            print(text, done.stdout[-1500:], done.stderr[-1500:], sep="\n", flush=True)
            report.hold(str(said), done.returncode == 0, f"code {done.returncode}: {done.stderr[-300:]}")
    report.finish()


if __name__ == "__main__":
    main()
