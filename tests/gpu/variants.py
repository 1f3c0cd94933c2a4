"""Every CUDA and Triton variant of the bundles that this GPU can run, forced, on this GPU; writes the ran_on facts."""

import json
import os
import pathlib
import sys

from conformance import devices, runner
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLES = [("build/kernels.kb", ROOT / "kernels", "kernels"),
           ("build/downstream.kb", ROOT / "tests/downstream/library", None),
           ("build/triton.kb", ROOT / "tests/triton/library", None)]


def main():
    report, cuda = Report("conformance"), devices.Cuda()
    few = "--few" in sys.argv
    only = [a for a in sys.argv[1:] if a != "--few"]
    for path, reference, records in BUNDLES:
        if not (ROOT / path).exists():
            report.hold(f"{path} is there", False, "build it and bring it along")
            continue
        outcomes, skipped = run(ROOT / path, cuda, reference, only, few)
        report.fact(f"{path}: variants of this device kind", len(outcomes) + len(skipped))
        for variant, reason in skipped:
            print(f"     not for this device: {variant} ({reason})")
        for outcome in outcomes:
            if not outcome.passed:
                report.hold(outcome.variant, False, outcome.reason())
        report.bar(f"{path}: variants launched and right", sum(o.passed for o in outcomes), max(1, len(outcomes)),
                   "variants", at_least=True)
        report.fact(f"{path}: launches", sum(2 * o.launches for o in outcomes))
        report.fact(f"{path}: largest error, in tolerances", round(max((o.worst for o in outcomes), default=0), 3))
        if records and not only and not few:
            write_records(outcomes, cuda.name)
    report.finish()


def run(path, cuda, reference, only, few):
    conformance, outcomes, skipped = runner.Conformance(path, cuda, [reference], few), [], []
    for op in conformance.ops():
        for variant, reason in conformance.variants(op):
            if only and not any(o in variant["id"] for o in only):
                continue
            if reason:
                skipped.append((variant["id"], reason))
                continue
            outcomes.append(conformance.run(op, variant))
    return outcomes, skipped


def write_records(outcomes, device):
    """One line per code object that passed, by family: what the next build embeds as ran_on."""
    families = {}
    for outcome in outcomes:
        if outcome.passed:
            families.setdefault(outcome.variant.split(".")[0], set()).update(outcome.blobs)
    for family, blobs in families.items():
        path = pathlib.Path(os.environ.get("KB_OUT", ROOT / "build")) / f"ran_on.{family}.jsonl"
        path.write_text("".join(json.dumps({"device": device, "sha256": blob}) + "\n" for blob in sorted(blobs)))
        print(f"     {len(blobs)} ran_on facts in {path.name}: they belong into kernels/{family}/ran_on.jsonl")


if __name__ == "__main__":
    main()
