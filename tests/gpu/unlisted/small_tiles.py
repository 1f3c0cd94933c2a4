"""Our attention kernels in the tiles of sm_80, compiled for this GPU instead: every variant on the cases of conformance, in float64.

    small_tiles.py            section small_tiles: needs build/small_tiles/attention.kb
    small_tiles.py --build    makes it, on a machine with a compiler and without a GPU
"""

import shutil
import subprocess
import sys

from conformance import capi, devices
from report import Report

ROOT = capi.ROOT
OUT = ROOT / "build/small_tiles"
BUNDLE = OUT / "attention.kb"


def build():
    """kernels/attention, with variants of sm_80 said to be for sm_90a; what is for both stays as it is, and comes from the cache."""
    shutil.rmtree(OUT, ignore_errors=True)
    shutil.copytree(ROOT / "kernels/attention", OUT / "attention", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "kernels/include", OUT / "include")
    changed = 0
    for path in (OUT / "attention").glob("*.toml"):
        text = path.read_text()
        changed += text.count('["sm_80"]')
        path.write_text(text.replace('["sm_80"]', '["sm_90a"]'))
    assert changed >= 6, f"{changed} variants are for sm_80 alone"
    subprocess.run([str(ROOT / "build/release/kbundle"), "build", str(OUT / "attention"), "--target", "sm_90a", "--provider", "cuda", "-o",
                    str(BUNDLE)], check=True)


def main():
    if "--build" in sys.argv:
        return build()
    report = Report("small_tiles")
    if not report.hold(f"{BUNDLE.name} is there", BUNDLE.exists(), "tests/gpu/unlisted/small_tiles.py --build makes it, elsewhere"):
        report.finish()
    import flash  # which looks for a GPU's libraries
    cases = flash.Cases(BUNDLE, devices.Cuda(), [ROOT / "kernels"])
    outcomes = [cases.run(op, variant) for op, variant in cases.variants() if "/flash_small" in variant["id"]]
    for outcome in outcomes:
        if not outcome.passed:
            report.hold(outcome.variant, False, outcome.reason())
    report.bar("variants right on every case", sum(o.passed for o in outcomes), max(40, len(outcomes)), "variants", at_least=True)
    report.fact("launches", sum(2 * o.launches for o in outcomes))
    report.fact("fewest launches of a variant", min((o.launches for o in outcomes), default=0))
    report.finish()


if __name__ == "__main__":
    main()
