"""Every CUDA, Triton, Warp, CuTe DSL and library variant of the bundles that this GPU can run, forced, on this GPU; writes the ran_on facts.

    variants.py [--few] [--own | --libraries] [FAMILY or part of an id ..]     by default everything
"""

import json
import os
import pathlib
import sys
import time

import flash
import launch_cost
import listed
from conformance import devices, matmul, runner
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "build/kernels.kb"
OTHERS = [(f"build/{name}.kb", ROOT / "tests" / name / "library") for name in ("downstream", "triton", "warp", "cute")]
CPUS = ("x86-64-", "armv8-")
SECONDS = int(os.environ.get("KB_SECONDS", 150)) - 25  # the rest is for what takes long at the end


def main():
    report, cuda = Report("conformance"), devices.Cuda()
    few, only = "--few" in sys.argv, next((a for a in ("--own", "--libraries") if a in sys.argv), None)
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    until = time.monotonic() + SECONDS
    if KERNELS.exists():
        conformance = flash.Conformance(KERNELS, cuda, [ROOT / "kernels"], few)
        known = sorted({op["name"].split(".")[0] for op in conformance.ops()})
        families = [f for f in known if f in wanted] or known
        parts = [w for w in wanted if w not in (*known, "others")]
        for family in families:
            outcomes = check(report, f"build/kernels.kb, {family}", conformance, family, parts, few, until, only)
            if not few:
                write_records(family, outcomes, cuda.name)
    else:
        report.hold(f"{KERNELS.name} is there", False, "build it and bring it along")
    for path, reference in OTHERS if not wanted or "others" in wanted else []:
        if not (ROOT / path).exists():
            report.hold(f"{path} is there", False, "build it and bring it along")
            continue
        check(report, path, runner.Conformance(ROOT / path, cuda, [reference], few), None, [], few, until)
    report.finish()


def check(report, title, conformance, family, parts, few, until, only=None):
    outcomes, skipped = [], []
    for op in conformance.ops():
        if family is None or op["name"].startswith(family + "."):
            found, absent = run_op(conformance, op, parts, few, until, only)
            outcomes += found
            skipped += absent
    report.fact(f"{title}: variants of this device kind", len(outcomes) + len(skipped))
    for variant, reason in skipped:
        print(f"     not for this device: {variant} ({reason})")
    for outcome in outcomes:
        if not outcome.passed:
            report.hold(outcome.variant, False, outcome.reason())
    report.bar(f"{title}: variants launched and right", sum(o.passed for o in outcomes), max(1, len(outcomes)), "variants", at_least=True)
    report.fact(f"{title}: launches", sum(2 * o.launches for o in outcomes))
    report.fact(f"{title}: largest error, in tolerances", round(max((o.worst for o in outcomes), default=0), 3))
    return outcomes


def run_op(conformance, op, parts, few, until, only):
    """(outcomes, variants that this device cannot run and why)."""
    outcomes, skipped, of_libraries, cases = [], [], [], None
    for variant in op["variants"]:
        library = variant["provider"] in listed.PROVIDERS
        if variant["target"].startswith(CPUS) or (parts and not any(part in variant["id"] for part in parts)):
            continue
        if only and library != (only == "--libraries"):
            continue
        if library:
            of_libraries.append(variant)
        elif reason := conformance.unreachable(op, variant):
            skipped.append((variant["id"], reason))
        elif time.monotonic() > until:
            outcomes.append(runner.Outcome(variant["id"], failures=["there was no time for it"]))
        elif op["name"].startswith("attention."):
            cases = cases or flash_cases(conformance)
            outcomes.append(by_cases_too(conformance, cases.run(op, variant), op, variant))
        elif op["name"] == "matmul.matmul":
            cases = cases or matmul.Cases(KERNELS, conformance.device, conformance.roots)
            outcomes.append(small_products(conformance, cases, variant))
        else:
            outcomes.append(conformance.run(op, variant))
    if of_libraries and not few:
        launch_cost.frameworks_libraries()
        found, absent = listed.run(conformance, op, of_libraries, until)
        outcomes += found
        skipped += absent
    return outcomes, skipped


def flash_cases(conformance, made={}):
    if "cases" not in made:
        made["cases"] = flash.Cases(KERNELS, conformance.device, conformance.roots)
    return made["cases"]


def small_products(conformance, cases, variant):
    """What own kernels of products are for; what is allowed of float32 in general problems is less than TF32 rounds."""
    outcome, found = conformance.outcome(variant), cases.run_few_rows(variant, [*matmul.FEW_ROWS, *matmul.SMALL])
    outcome.launches, outcome.failures, outcome.worst = found.launches, found.failures, found.worst
    return outcome


def by_cases_too(conformance, outcome, op, variant):
    """Generic problems are few, and seldom as wide as a kernel is for: what the family's own cases gave counts as well."""
    generic = conformance.run(op, variant)
    outcome.launches += generic.launches
    outcome.failures += generic.failures
    outcome.worst = max(outcome.worst, generic.worst)
    return outcome


def write_records(family, outcomes, device):
    """One line per code object, execution plan or algorithm that was right: what the next build embeds as ran_on."""
    blobs = {blob for outcome in outcomes if outcome.passed for blob in outcome.blobs}
    path = pathlib.Path(os.environ.get("KB_OUT", ROOT / "build")) / f"ran_on.{family}.jsonl"
    lines = {json.dumps({"device": device, "sha256": blob}) + "\n" for blob in blobs}
    lines |= set(path.read_text().splitlines(keepends=True)) if path.exists() else set()  # of another section of this run
    path.write_text("".join(sorted(lines)))
    print(f"     {len(blobs)} ran_on facts in {path.name}: they belong into kernels/{family}/ran_on.jsonl")


if __name__ == "__main__":
    main()
