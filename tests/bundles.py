"""The bundles that tests of the Python package call, built by the command into a folder: `tests/bundles.py COMMAND FOLDER [NAME...]`.

scripts/check builds them once and names the folder as KB_TEST_BUNDLES; without it the tests build what they ask for (python/conftest.py).
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIBRARIES = {"probe": ROOT / "tests/python/library", "demo": ROOT / "tests/downstream/library", "kernels": ROOT / "kernels",
             "other_probe": ROOT / "tests/python/library"}
TARGETS = {"other_probe": "x86-64-v2"}  # the ops of probe, and other content


def build(command, name, folder):
    """Own names: other tests of a process may have a bundle of the same family open."""
    path = pathlib.Path(folder) / f"{name}.kb"
    targets = TARGETS.get(name, "x86-64-v2,x86-64-v3,x86-64-v4,sm_90a")
    subprocess.run([command, "build", str(LIBRARIES[name]), "-o", str(path), "--target", targets, "--name", f"python_{name}"], check=True)
    return path


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    for one in sys.argv[3:] or LIBRARIES:
        build(sys.argv[1], one, sys.argv[2])
