#!/usr/bin/env python3
"""Writes the drawn figures of this folder out of what is committed: tests/gpu/results/nvidia_h200.json, and sizes.json beside this file.

    docs/figures/draw.py             compared.svg, missed.svg, sizes.svg, way.svg
    docs/figures/draw.py --check     says which of them differ from what would be written, and exits with 1

Screens are made by screens.py, sizes.json by sizes.py: both want a bundle.
"""

import json
import pathlib
import sys

from compared import compared
from missed import missed
from sizes import sizes
from way import way

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "tests/gpu/results/nvidia_h200.json"


def figures():
    results = json.loads(RESULTS.read_text())
    return {"compared.svg": compared(results), "missed.svg": missed(results), "way.svg": way(), "sizes.svg": sizes()}


def main(words):
    if words not in ([], ["--check"]):
        print(__doc__)
        return 0 if words == ["--help"] else 2
    stale = []
    for name, text in figures().items():
        path = HERE / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not words:
                path.write_text(text)
    if stale and words:
        print(f"draw: {', '.join(stale)}: not what the results give now; run docs/figures/draw.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
