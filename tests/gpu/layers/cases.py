"""Every variant of a family on some of the family's own cases (tests/conformance/FAMILY.py), as several sections begin."""

import random
import time


def check_cases(report, cases, seed, most, seconds):
    """At most so many cases for each variant, other ones with each seed; what no time is left for is told."""
    until = time.monotonic() + seconds
    random.Random(seed).shuffle(cases.cases)
    outcomes, late = [], 0
    for op, variant in cases.variants():
        if time.monotonic() > until:
            late += 1
            continue
        outcomes.append(cases.run(op, variant, most))
        if outcomes[-1].failures:
            report.hold(outcomes[-1].variant, False, outcomes[-1].reason())
    launched = [outcome for outcome in outcomes if outcome.launches]
    report.bar("variants right on every case", sum(o.passed for o in launched), max(1, len(launched)), "variants", at_least=True)
    report.fact("variants without a case, or without time for one", [len(outcomes) - len(launched), late])
    report.fact("largest error, in tolerances", round(max((o.worst for o in outcomes), default=0), 3))
