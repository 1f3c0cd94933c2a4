"""The size bar: the bundle's cubins, stored, against the same cubins as nvcc's --compress-mode=size fatbins.

A fatbin holds one variant's cubins of all targets, as nvcc makes one for a source compiled for several.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAR = 0.35


def fatbinary():
    wheels = ROOT.glob(".venv/lib/python3.*/site-packages/nvidia/cu13/bin/fatbinary")
    for path in [*wheels, pathlib.Path("/usr/local/cuda/bin/fatbinary")]:
        if path.exists():
            return str(path)
    sys.exit("bundle_size: no fatbinary: run scripts/setup")


def main():
    command = str(ROOT / "build/release/kbundle")
    path = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/kernels.kb")
    described = json.loads(subprocess.run([command, "inspect", path, "--json"], check=True, capture_output=True,
                                          text=True).stdout)
    blobs = described["blobs"]
    groups, seen = collections.defaultdict(list), set()
    for op in described["ops"]:
        for variant in op["variants"]:
            for step, kernel in enumerate(variant["kernels"], 1):
                blob = kernel["blob"]
                if blob >= 0 and blobs[blob]["format"] == "cubin" and blob not in seen:
                    seen.add(blob)
                    groups[variant["id"].split("@")[0], step].append((variant, blob))
    stored = sum(blobs[b]["stored_bytes"] for b in seen)
    raw = sum(blobs[b]["bytes"] for b in seen)
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for (_, step), variants in groups.items():
            images = []
            for variant, blob in variants:
                cubin = pathlib.Path(folder) / f"{blob}.cubin"
                subprocess.run([command, "extract", path, variant["id"], "--step", str(step), "-o", str(cubin)], check=True,
                               capture_output=True)
                images.append(f"--image3=kind=elf,sm={variant['target'].removeprefix('sm_')},file={cubin}")
            fatbin = pathlib.Path(folder) / "all.fatbin"
            subprocess.run([fatbinary(), "-64", "--compress-mode=size", f"--create={fatbin}", *images], check=True)
            total += fatbin.stat().st_size
    ratio = stored / total
    print(f"{len(seen)} cubins: {raw} bytes raw, {stored} in the bundle, {total} as {len(groups)} fatbins: "
          f"{ratio:.3f} (bar <= {BAR})")
    sys.exit(0 if ratio <= BAR else 1)


if __name__ == "__main__":
    main()
