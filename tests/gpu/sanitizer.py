"""compute-sanitizer finds nothing: memcheck and racecheck over the small problems of every variant, and over maps of any bytes;
as section sanitizer_quantize the same over numbers and tiles of every kind, as sanitizer_norm, sanitizer_cross_entropy and
sanitizer_grouped over their family's variants, as sanitizer_router over rows of every kind,
as sections sanitizer_attention and sanitizer_matmul memcheck over our kernels of these families, with FlashAttention-4's and with the
products in front of them; as sanitizer_modifiers memcheck over attention with random score modifiers, whose tensors end where their
allocation does."""

import itertools
import os
import pathlib
import shutil
import subprocess
import sys

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    report = Report("sanitizer")
    tool = shutil.which("compute-sanitizer") or next(
        map(str, pathlib.Path("/").glob("usr/local/cuda*/bin/compute-sanitizer")), None)
    if not report.hold("compute-sanitizer is there", tool):
        report.finish()
    env = {k: v for k, v in os.environ.items() if k not in ("KB_RESULT", "KB_OUT")}
    plain = itertools.product(("memcheck", "racecheck"), (["variants.py", "--few", "softmax", "permutation", "others"],
                                                          ["permutation.py", "--hostile"]))
    others = {"attention": [("memcheck", ["flash.py", "--few"]), ("memcheck", ["flash.py", "--few", "--cute"])],
              "modifiers": [("memcheck", ["attention_grid.py", "--modifiers"])],
              **{family: [(check, ["variants.py", "--few", family]) for check in ("memcheck", "racecheck")]
                 for family in ("norm", "cross_entropy", "grouped")},
              "quantize": [(check, ["layers/quantize.py", "--hostile"]) for check in ("memcheck", "racecheck")],
              "router": [(check, ["layers/router.py", "--hostile"]) for check in ("memcheck", "racecheck")],
              "matmul": [("memcheck", ["variants.py", "--libraries", "matmul", "product_then_gradient"]),
                         *((check, ["variants.py", "--few", "--own", "matmul", "A=bf16,B=bf16,O=bf16"]) for check in ("memcheck", "racecheck"))]}
    for check, script in next((runs for family, runs in others.items() if family in sys.argv), plain):
        # A driver call that answers "no" is no finding: the loader asks for parameters until there are no more.
        options = ["--report-api-errors", "no"] if check == "memcheck" else []
        child = subprocess.run([tool, "--tool", check, *options, "--error-exitcode", "99", sys.executable,
                                str(ROOT / "tests/gpu" / script[0]), *script[1:]], env=env, capture_output=True, text=True)
        text = child.stdout + child.stderr
        summary = [line for line in text.splitlines() if "SUMMARY" in line]
        findings = [line for line in text.splitlines() if line.startswith("=========")]
        if child.returncode:
            print("\n".join(findings[:40] + child.stdout.splitlines()[-20:]))
        title = f"{check} of {' '.join(script)}"
        report.hold(f"{title}: no finding", child.returncode == 0 and summary,
                    f"code {child.returncode}: {summary or text[-300:]}")
        report.fact(title, " ".join(summary).strip("= "))
    report.finish()


if __name__ == "__main__":
    main()
