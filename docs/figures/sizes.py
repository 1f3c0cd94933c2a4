#!/usr/bin/env python3
"""Measures what code objects take raw, compressed each alone, and in the bundle, and draws sizes.svg of it.

    docs/figures/sizes.py BUNDLE     writes sizes.json: by op family and kind of code, with the bundle's content and the day

Alone means zstd at the level of the builder (19) without a base; in the bundle, that with bases. The bytes are those of `kbundle extract`.
"""

import collections
import ctypes
import ctypes.util
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from svg import Drawing

HERE = pathlib.Path(__file__).resolve().parent
COMMAND = os.environ.get("KBUNDLE", HERE.parents[1] / "build/release/kbundle")
KINDS = {"cubin": "for GPUs", "host object": "for CPUs"}


def compressed(data, zstd=ctypes.CDLL(ctypes.util.find_library("zstd"))):
    """How many bytes zstd makes of it."""
    zstd.ZSTD_compressBound.restype = zstd.ZSTD_compress.restype = ctypes.c_size_t
    room = zstd.ZSTD_compressBound(ctypes.c_size_t(len(data)))
    return zstd.ZSTD_compress(ctypes.create_string_buffer(room), ctypes.c_size_t(room), data, ctypes.c_size_t(len(data)), 19)


def measured(path):
    described = json.loads(subprocess.run([COMMAND, "inspect", path, "--json"], check=True, capture_output=True, text=True).stdout)
    groups, seen = {}, set()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "object"
        for op in described["ops"]:
            for variant in op["variants"]:
                for step, kernel in enumerate(variant["kernels"], 1):
                    blob = described["blobs"][kernel["blob"]] if kernel["blob"] >= 0 else None
                    if blob is None or kernel["blob"] in seen or blob["format"] not in KINDS:
                        continue
                    seen.add(kernel["blob"])
                    extract = [COMMAND, "extract", path, variant["id"], "--step", str(step), "-o", file, "--force"]
                    subprocess.run(extract, check=True, capture_output=True)
                    group = groups.setdefault((op["name"].split(".")[0], blob["format"]), collections.Counter())
                    group.update(objects=1, raw=blob["bytes"], alone=compressed(file.read_bytes()), stored=blob["stored_bytes"])
    rows = [{"family": family, "format": kind, **group} for (family, kind), group in sorted(groups.items())]
    return {"content_id": described["content_id"], "date": datetime.date.today().isoformat(), "targets": described["targets"], "rows": rows}


def sizes():
    """A family's code, and below it what is left of that: compressed object by object, and as the bundle stores it."""
    found = json.loads((HERE / "sizes.json").read_text())
    left, full, y = 240, 440, 112
    drawing = Drawing(960, "What code takes in a bundle")
    drawing.text(18, 30, "What code takes in a bundle", "big")
    drawing.text(18, 50, f"The code objects of these families of kernels/, {found['date']}, for {', '.join(found['targets'])}.", "faint")
    for x, kind, words in ((18, "plain", "raw"), (78, "bad", "zstd, each object alone"),
                           (258, "good", "in the bundle: zstd with bases, random access kept")):
        drawing.box(x, 64, 10, 10, kind)
        drawing.text(x + 16, 74, words, "small")
    most = max(row["raw"] for row in found["rows"])
    for kind, words in KINDS.items():
        rows = sorted((row for row in found["rows"] if row["format"] == kind), key=lambda row: -row["raw"])
        drawing.text(18, y, words, "bold")
        y += 22
        for row in rows:
            drawing.text(30, y, row["family"])
            drawing.text(left - 14, y, f"{row['objects']} objects" if row["objects"] > 1 else "1 object", "faint small", "end")
            for at, (name, colour) in enumerate((("raw", "plain"), ("alone", "bad"), ("stored", "good"))):
                drawing.box(left, y - 13 + 6 * at, full * row[name] / most, 5, colour)
            raw, alone, stored = (row[name] / 1e6 for name in ("raw", "alone", "stored"))
            words = f"{raw:.2f} MB, {alone:.2f}, {stored:.2f}: {raw / stored:.1f} times smaller"
            drawing.text(left + 10 + full * row["raw"] / most, y, words, "small")
            y += 28
        y += 12
    total = {name: sum(row[name] for row in found["rows"]) / 1e6 for name in ("raw", "alone", "stored")}
    drawing.text(18, y, f"All: {total['raw']:.1f} MB raw, {total['alone']:.1f} each alone, {total['stored']:.1f} in the bundle.", "bold")
    return drawing.svg(y + 20)


def main(words):
    if len(words) != 1 or words[0].startswith("-"):
        print(__doc__)
        return 0 if words == ["--help"] else 2
    (HERE / "sizes.json").write_text(json.dumps(measured(pathlib.Path(words[0]).resolve()), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
