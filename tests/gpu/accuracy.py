"""The accuracy bars of the softmax ops on this GPU."""

import pathlib

from conformance import accuracy, devices
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    report, worst = Report("accuracy"), {}
    count = 0
    for op, dtype, problem, special, ratio, sentence in accuracy.run(
            ROOT / "build/kernels.kb", devices.Cuda(), [ROOT / "kernels"]):
        count += 1
        if not ratio <= 1:
            print(f"     {problem} {special}: {ratio:.3g} times the bar, {sentence}")
        if (op, dtype) not in worst or not ratio <= worst[op, dtype][0]:
            worst[op, dtype] = ratio, f"{problem} {special}"
    report.fact("cases", count)
    for (op, dtype), (ratio, where) in sorted(worst.items()):
        report.bar(f"{op} {dtype}: largest error", ratio, 1, "of the bar" if dtype == "f32" else "ulp")
    report.finish()


if __name__ == "__main__":
    main()
