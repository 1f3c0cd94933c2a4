"""Attention by cuDNN's plans and by our own kernels on many small problems, against float64: every mask, layout, dtype and number of key
heads, sequences of no token among them; random score modifiers; plans made for another driver version, another device, another
cuDNN. The bundles are those of grid_bundles.py.

Of each problem one key head with its queries' heads of each batch is compared. KB_OTHER_CUDNN: the folder of the second cuDNN.
With --modifiers only the random score modifiers, on buffers without guards, which end with their allocation: for compute-sanitizer.
"""

import collections
import itertools
import json
import os
import subprocess
import sys
import time

import numpy as np

import attention
import launch_cost
from conformance import capi, devices, runner
from cudnn_backend import version_text
from report import Report

ROOT = capi.ROOT
FOLDER = ROOT / "build/attention_grid"
FEW_SECONDS = 200


class Case(attention.Case):
    """The first batch has no keys, the second no queries."""

    def lengths(self, number, operands):
        made = np.maximum(super().lengths(number, operands), 2)
        made[0 if number == 5 else 1] = 0
        return made

    def chosen(self):
        q, k = (attention.heads_first(x, self.attributes) for x in self.host[:2])
        for b in range(q.shape[0]):
            yield b, b % k.shape[1]


class Launched(attention.Runs):
    """One launch, in a capture, of which only the result matters."""

    def variants(self, problem):
        """Without plans of a cuDNN that this process does not have."""
        loaded = f"CUDNN={launch_cost.library('libcudnn.so.9').cudnnGetVersion()}"
        return [v for v in super().variants(problem) if "/cudnn[" not in v or loaded in v]

    def time(self, launch):
        return 0.0


def every_run(name, cuda):
    runs = Launched(cuda, capi.Bundle(FOLDER / f"{name}.kb"))
    reference = runner.load_reference("attention", [FOLDER / name])
    return itertools.chain(attention.forward_runs(runs, reference, Case), attention.backward_runs(runs, reference, Case))


def provider(run):
    return "cuDNN" if "/cudnn[" in run.variant else "our kernels"


def counted(report, title, runs):
    """A bar for each op and provider: right on each problem that it takes."""
    of = collections.defaultdict(list)
    for run in runs:
        of[run.way, provider(run)].append(run)
    for (way, by), found in sorted(of.items()):
        wrong = [f"{run}: {run.worst()}" for run in found if not run.right()]
        for text in wrong[:8]:
            print(f"     {text}")
        report.bar(f"{title}, {way}, {by}: problems that are right", len(found) - len(wrong), len(found), "problems", at_least=True)
    return of


def grid(report, cuda):
    modified = sorted(path.stem for path in FOLDER.glob("modifiers*.kb"))
    for title, names in (("masks x layouts x dtypes x heads", ["grid"]), ("random score modifiers", modified)):
        found = counted(report, title, itertools.chain(*(every_run(name, cuda) for name in names)))
        for way in ("forward", "backward"):
            every = sum(len(list(attention.listed(capi.Bundle(FOLDER / f"{name}.kb"), f"attention.sdpa_{way}", None))) for name in names)
            report.bar(f"{title}, {way}: problems", every, 50, at_least=True)
            report.fact(f"{title}, {way}: problems that cuDNN refused", every - len(found[way, "cuDNN"]))


def few_modifiers(report, cuda):
    """As many of the bundles with random modifiers as there is time for; what this GPU reads past a tensor the sanitizer reports."""
    devices.GUARD, start, done = 0, time.monotonic(), 0
    every = sorted(path.stem for path in FOLDER.glob("modifiers*.kb"))
    for name in every:
        if time.monotonic() - start > FEW_SECONDS:
            break
        counted(report, name, every_run(name, cuda))
        done += 1
    report.bar("bundles of random modifiers that ran", done, 1, at_least=True)
    report.fact("bundles that there was no time for", len(every) - done)


def planned(name):
    """The variants that the forward problems of a bundle get when nothing is forced, or the error of the first that gets none."""
    bundle = capi.Bundle(FOLDER / f"{name}.kb")
    bundle.clear_policy()
    try:
        return [capi.Plan(bundle, problem, capi.CUDA).variant for problem, *_ in attention.listed(bundle, attention.FORWARD, None)]
    except capi.KbError as error:
        return str(error)


def bits(name, cuda):
    """Results of the plans of one bundle on its problems, on the same data."""
    made = []
    for run in attention.forward_runs(Launched(cuda, capi.Bundle(FOLDER / f"{name}.kb")), None, Unjudged):
        assert run.why is None, run.why
        made += run.errors
    return made


class Unjudged(Case):
    def forward_errors(self, o, stats):
        return [o.get().tobytes(), stats.get().tobytes()]


def devices_differ(report, cuda):
    runs = list(every_run("driver", cuda))
    counted(report, "planned for another driver version", runs)
    report.hold("planned for another driver version: the same bits", bits("driver", cuda) == bits("live", cuda))
    why = str(planned("processors"))
    report.hold("planned for another device: refused, by the field's name", "multiProcessorCount" in why and "132" in why, why)


# ---- Another cuDNN, in a process of its own ----

def in_child(report, name, folder):
    """What each plan of a bundle is, and whether it is right, in a process whose cuDNN is another."""
    env = dict(os.environ, LD_LIBRARY_PATH=folder + os.pathsep + os.environ.get("LD_LIBRARY_PATH", ""))
    child = subprocess.run([sys.executable, __file__, "child", name], env=env, capture_output=True, text=True, timeout=120)
    if child.returncode:
        return report.hold(f"{name}.kb in a process with another cuDNN", False, child.stderr.strip()[-300:])
    return json.loads(child.stdout.splitlines()[-1])


def child(name):
    launch_cost.frameworks_libraries()
    cuda = devices.Cuda()
    version = launch_cost.library("libcudnn.so.9").cudnnGetVersion()
    runs = [[r.right(), f"{r}: {r.worst()}"] for r in every_run(name, cuda)] if name == "versions" else []
    print(json.dumps({"version": version, "runs": runs, "planned": planned(name)}))


def versions(report, cuda):
    own = launch_cost.library("libcudnn.so.9").cudnnGetVersion()
    of_own, why = f"plans of two versions, cuDNN {version_text(own)}", str(planned("newer"))
    report.hold("plans of a newer cuDNN alone: an error that names both versions", version_text(own) in why and "made by cuDNN" in why, why)
    counted(report, of_own, every_run("versions", cuda))
    report.hold(f"{of_own}: its own are taken", all(f"CUDNN={own}]" in v for v in planned("versions")))
    folder = os.environ.get("KB_OTHER_CUDNN")
    if not folder:
        report.fact("the second cuDNN", "not here: KB_OTHER_CUDNN names its folder")
        return
    if found := in_child(report, "versions", folder):
        other, wrong = found["version"], [what for right, what in found["runs"] if not right]
        print("".join(f"     {what}\n" for what in wrong[:8]), end="")
        report.hold("the second process has another cuDNN", other != own, version_text(other))
        count, of_other = len(found["runs"]), f"plans of two versions, cuDNN {version_text(other)}"
        report.bar(f"{of_other}: plans that are right", count - len(wrong), max(1, count), "plans", at_least=True)
        report.hold(f"{of_other}: its own are taken", all(f"CUDNN={other}]" in v for v in found["planned"]))
    if found := in_child(report, "live", folder):
        why, both = str(found["planned"]), (version_text(own), version_text(found["version"]))
        report.hold("plans of an older cuDNN alone: an error that names both versions", all(one in why for one in both), why)


def main():
    if sys.argv[1:2] == ["child"]:
        return child(sys.argv[2])
    report = Report("attention on many small problems")
    first = FOLDER / ("modifiers0.kb" if "--modifiers" in sys.argv else "grid.kb")
    if not report.hold(f"{first.name} is there", first.exists(), "make it with tests/gpu/grid_bundles.py and bring it along"):
        report.finish()
    launch_cost.frameworks_libraries()
    cuda = devices.Cuda()
    if "--modifiers" in sys.argv:
        few_modifiers(report, cuda)
        report.finish()
    grid(report, cuda)
    devices_differ(report, cuda)
    if (FOLDER / "versions.kb").exists():
        versions(report, cuda)
    else:
        report.fact("plans of two versions", "not made: KBUNDLE_CUDNN named no second library when the bundles were")
    report.finish()


if __name__ == "__main__":
    main()
