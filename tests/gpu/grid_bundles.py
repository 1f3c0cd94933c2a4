"""Makes build/attention_grid/: the bundles that section attention_grid runs, planned and compiled on this machine without a GPU, from
manifests that are kernels/attention's with other problems and score modifiers.

    python tests/gpu/grid_bundles.py [--seed N] [--modifiers N]

grid.kb           every mask x layout x dtype x number of key heads on small shapes
modifiers0.kb ..  random score modifiers with tensors over every set of b, h, q, k, a few in each: a kernel of ours takes minutes to
                  compile with many
live.kb           two problems, planned as those above
driver.kb         the same, planned for a device profile of another driver version
processors.kb     the same, planned for a profile with another number of multiprocessors
newer.kb          some problems, planned by another cuDNN alone: the second library that KBUNDLE_CUDNN names, if it names two
versions.kb       the same problems, planned by both
sequences.kb      ragged attention of thousands of short sequences, for section cliffs
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "build/attention_grid"
sys.path.insert(0, str(ROOT / "tests"))
from conformance import modified_attention  # noqa: E402
from cudnn_backend import version_text  # noqa: E402

#         mask, window, whether there are lengths
MASKS = [("none", -1, False), ("causal", -1, False), ("causal", 50, False), ("causal_bottom_right", -1, False),
         ("causal_bottom_right", 50, False), ("none", -1, True), ("causal", -1, True)]
HEADS = [(4, 4), (4, 2), (4, 1)]
MODIFIERS = 5  # of a family
MODIFIED = (131, 203)  # queries and keys, no multiple of any tile: what sticks out would be read past the end of a modifier's tensors
PROFILE = {"driver": "driverVer", "processors": "multiProcessorCount"}


# ---- Problems, as a manifest lists them ----

def listed_problem(backward, dtype, layout, heads, sizes, depth, **more):
    """more: operands that are there by True or dims, and attributes."""
    place = lambda s, h: [3, s, h, depth] if layout == "bshd" else [3, h, s, depth]
    made = {"T": dtype, "q": place(sizes[0], heads[0]), "k": place(sizes[1], heads[1]), "v": place(sizes[1], heads[1])}
    made |= {"scale": depth ** -0.5, "layout": layout} | more
    return made if backward else made | {"with_stats": True}


def grid(backward):
    for number, (mask, layout, dtype, heads) in enumerate(itertools.product(MASKS, ("bshd", "bhsd"), ("bf16", "f16"), HEADS)):
        kind, window, lengths = mask
        more = {"q_lengths": True, "kv_lengths": True} if lengths else {}
        more |= {"mask": kind, "window": window}
        yield listed_problem(backward, dtype, layout, heads, (200, 328), (64, 128)[number % 2], **more)


def modified(backward, modifiers):
    for number, (name, (_, modifier, values)) in enumerate(modifiers.items()):
        more = {"score_mod": name, "score_scalars": values, "mask": ("none", "causal")[number // 4 % 2]}
        more |= {name: list(dims) for name, dims in modifier.shapes(dict(zip("bhqk", (3, 4, *MODIFIED)))).items()}
        yield listed_problem(backward, ("bf16", "f16")[number % 2], ("bshd", "bhsd")[number // 2 % 2], (4, 2), MODIFIED, 64, **more)


def both(problems_of):
    """{op: its problems}, of a function of whether the op is the backward one."""
    return {f"sdpa_{which}": problems_of(which == "backward") for which in ("forward", "backward")}


# ---- Bundles ----

def build(name, expressions, problems, cudnn, profile="h200", provider="cudnn,cuda", own=(["bf16", "f16"], [64, 128])):
    """OUT/name: the manifest, its sources and its reference; OUT/name.kb: the bundle. own: dtypes and head dims of our kernels."""
    def narrowed(variant):
        dtypes, depths = own
        variant = re.sub(r"(?m)^tunables  = .*$", f"tunables = {{ VECTOR = [1], HEAD = {depths}, HEADV = {depths} }}", variant)
        variant = re.sub(r'(?m)^extends   = "flash"$', lambda line: f"{line.group()}\ntypes = {{ T = {json.dumps(dtypes)} }}", variant)
        variant = re.sub(r"(?m)^keep      = .*$", 'keep = ["HEADV == HEAD"]', variant)
        variant = re.sub(r"(?m)^cudnn( +)= .*$", f"cudnn = {json.dumps(cudnn)}", variant)
        return re.sub(r"(?m)^profile( +)= .*$", f"profile = {json.dumps(profile)}", variant)

    folder = OUT / name / "attention"
    modified_attention.write(folder, expressions, problems, ("cudnn", "flash_any"), narrowed)
    if profile != "h200":
        (folder / profile).write_text(json.dumps(other_profile(name)))
    subprocess.run([str(ROOT / "build/release/kbundle"), "build", str(folder), "--target", "sm_90a", "--provider", provider,
                    "-o", str(OUT / f"{name}.kb")], check=True)


def build_sequences():
    """OUT/sequences.kb: one problem of ragged attention, which our manifest does not list: its reference would take minutes."""
    problem = {"T": "bf16", "q": [65536, 8, 64], "k": [65536, 8, 64], "v": [65536, 8, 64], "q_offsets": [4097], "max_queries": 64,
               "max_keys": 64, "scale": 0.125, "with_stats": True}
    folder = OUT / "sequences/attention"
    modified_attention.write(folder, {"softcap": "cap * tanh(s / cap)"}, {"sdpa_ragged_forward": [problem]}, ("cudnn",))
    subprocess.run([str(ROOT / "build/release/kbundle"), "build", str(folder), "--target", "sm_90a", "-o", str(OUT / "sequences.kb")],
                   check=True)


def other_profile(name):
    profile = json.loads((ROOT / "builder/provider/cudnn/profiles/h200.json").read_text())
    profile[PROFILE[name]] -= 20
    return profile


def version_of(library):
    """Asked in a process of its own: a second cuDNN of a process answers for the first."""
    ask = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).cudnnGetVersion())"
    return version_text(int(subprocess.run([sys.executable, "-c", ask, library], check=True, capture_output=True, text=True).stdout))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--modifiers", type=int, default=50)
    parser.add_argument("--only-modifiers", action="store_true", help="no grid and no other plans: what sanitizer_modifiers and cliffs need")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    grammar = modified_attention.Grammar(args.seed)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    plain = {"softcap": "cap * tanh(s / cap)"}
    for first in range(0, args.modifiers, MODIFIERS):
        made = grammar.modifiers(f"modifier{i}" for i in range(first, min(first + MODIFIERS, args.modifiers)))
        build(f"modifiers{first // MODIFIERS}", modified_attention.texts(made), both(lambda backward: list(modified(backward, made))),
              ["9.19.0"], own=(["bf16"], [64]))
    build_sequences()
    if args.only_modifiers:
        return
    build("grid", plain, both(lambda backward: list(grid(backward))), ["9.19.0"])
    few = both(lambda backward: [listed_problem(backward, "bf16", "bshd", (4, 2), (200, 328), 128, mask=mask) for mask in ("causal", "none")])
    build("live", plain, few, ["9.19.0"], provider="cudnn")
    for name in PROFILE:
        build(name, plain, few, ["9.19.0"], "other.json", "cudnn")
    libraries = os.environ.get("KBUNDLE_CUDNN", "").split(":")
    if len(libraries) == 2:
        some = both(lambda backward: list(grid(backward))[::5])
        versions = [version_of(library) for library in libraries]
        build("versions", plain, some, versions, provider="cudnn")
        build("newer", plain, some, versions[1:], provider="cudnn")


if __name__ == "__main__":
    main()
