"""Makes build/attention_grid/: the bundles that section attention_grid runs, planned and compiled on this machine without a GPU, from
manifests that are kernels/attention's with other problems and score modifiers.

    python tests/gpu/grid_bundles.py [--seed N] [--modifiers N]

grid.kb           every mask x layout x dtype x number of key heads on small shapes
modifiers0.kb ..  random score modifiers, a few in each: a kernel of ours takes minutes to compile with many
live.kb           two problems, planned as those above
driver.kb         the same, planned for a device profile of another driver version
processors.kb     the same, planned for a profile with another number of multiprocessors
newer.kb          some problems, planned by another cuDNN alone: the second library that KBUNDLE_CUDNN names, if it names two
versions.kb       the same problems, planned by both
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

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILY, OUT = ROOT / "kernels/attention", ROOT / "build/attention_grid"
sys.path[:0] = [str(ROOT / "tests"), str(FAMILY)]
import reference  # noqa: E402

MASKS = [("none", -1), ("causal", -1), ("causal", 50), ("causal_bottom_right", -1), ("causal_bottom_right", 50), ("lengths", -1),
         ("causal lengths", -1)]
HEADS = [(4, 4), (4, 2), (4, 1)]
MODIFIERS = 5  # of a family
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
        kind, window = mask
        more = {"q_lengths": True, "kv_lengths": True} if "lengths" in kind else {}
        more |= {"mask": "causal" if kind.startswith("causal l") else "none" if kind == "lengths" else kind, "window": window}
        yield listed_problem(backward, dtype, layout, heads, (200, 328), (64, 128)[number % 2], **more)


def modified(backward, modifiers):
    for number, (name, (modifier, values)) in enumerate(modifiers.items()):
        more = {"score_mod": name, "score_scalars": values, "mask": ("none", "causal")[number // 4 % 2]}
        more |= {"score_tensor0": [4]} if modifier.tensors else {}
        yield listed_problem(backward, ("bf16", "f16")[number % 2], ("bshd", "bhsd")[number // 2 % 2], (4, 2), (130, 200), 64, **more)


def as_toml(problem):
    return "  { " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in problem.items()) + " },\n"


# ---- Random score modifiers ----

class Grammar:
    """Random expressions whose values and slopes stay moderate for scores of about 1, so that a result says whether the right
    expression was computed and not how 16 bits round. Any of the grammar, whatever its values: tests/builder/score_random.h."""

    UNARY = ("tanh({})", "sigmoid({})", "erf({})", "abs({})", "sqrt(abs({}) + 0.5)", "log(abs({}) + 1.5)", "exp(-abs({}))", "-({})",
             "pow(abs({}) + 0.5, 1.5)")
    BINARY = ("({} + {})", "({} - {})", "({} * {})", "min({}, {})", "max({}, {})", "{} / (abs({}) + 1.5)")
    LEAVES = ("s", "s", "s", "cap", "gain", "slope[h]", "0.25", "1.75", "(k - q) / 64")

    def __init__(self, seed):
        self.random = random.Random(seed)

    def number(self, depth):
        if depth == 0 or self.random.random() < 0.1:
            return self.random.choice(self.LEAVES)
        if self.random.random() < 0.2:
            return f"select({self.truth(depth - 1)}, {self.number(depth - 1)}, {self.number(depth - 1)})"
        text = self.random.choice(self.UNARY if self.random.random() < 0.45 else self.BINARY)
        return text.format(*(self.number(depth - 1) for _ in range(text.count("{}"))))

    def truth(self, depth):
        a, b = (self.random.choice(("q", "k", "k - q", "2 * k", "q + 20")) for _ in range(2))
        test = f"{a} {self.random.choice(('<', '<=', '>', '>=', '!=', '=='))} {b}"
        if depth and self.random.random() < 0.4:
            return f"({test} {self.random.choice(('&&', '||'))} {self.truth(depth - 1)})"
        return f"!({test})" if self.random.random() < 0.2 else test

    def modifier(self):
        """(text, reference.Modifier, values of its scalars) of one that depends on s and stays moderate."""
        while True:
            text = self.number(4)
            modifier = reference.Modifier(text)
            values = [round(self.random.uniform(0.4, 2.0), 2) for _ in modifier.scalars]
            sampled = np.random.default_rng(0).standard_normal((130, 200)) * 1.5
            indices = dict(zip("bhqk", (0, 1, np.arange(130)[:, None], np.arange(200)[None, :])))
            value, slope = modifier(sampled, indices, dict(zip("bhqk", (3, 4, 130, 200))), values, [np.full(4, 0.7)])
            moderate = np.isfinite(value).all() and np.isfinite(slope).all() and abs(value).max() < 40 and abs(slope).max() < 20
            if moderate and np.mean(abs(slope) > 0.05) > 0.2 and 12 < len(text) < 400:
                return text, modifier, values


# ---- Manifests ----

def manifest(modifiers, problems, cudnn, profile, own):
    """kernels/attention's with other contents: its ops of separate tensors, with the graphs of cuDNN and `flash_any` for the dtypes and
    head dims `own`."""
    text = (FAMILY / "attention.toml").read_text()
    text = text[:text.index("# Self-attention of one tensor")]
    head, rest = text.split("  [family.score_mods]\n", 1)
    text = f"{head}  [family.score_mods]\n" + "".join(f"  {n} = {json.dumps(e)}\n" for n, e in modifiers.items()) + rest[rest.index("\n[op."):]
    blocks = re.split(r"(?m)^(?=\[\[?op\.)", text)
    blocks = [b for b in blocks if not re.match(r"\[\[op\.\w+\.variant\]\]\nname\s*= \"(flash|simd)\"", b)]
    text = "".join(narrowed(block, problems, *own) for block in blocks)
    text = re.sub(r'(?m)^cudnn( +)= .*$', f"cudnn = {json.dumps(cudnn)}", text)
    return re.sub(r'(?m)^profile( +)= .*$', f"profile = {json.dumps(profile)}", text)


def narrowed(block, problems, dtypes, depths):
    if found := re.match(r"\[op\.sdpa_(forward|backward)\]\n", block):
        mine = "".join(map(as_toml, problems[found.group(1) == "backward"]))
        return re.sub(r"(?ms)^problems    = \[\n.*?^\]\n", lambda _: f"problems = [\n{mine}]\n", block)
    block = re.sub(r"(?m)^tunables  = .*$", f"tunables = {{ VECTOR = [1], HEAD = {depths}, HEADV = {depths} }}", block)
    block = re.sub(r"(?m)^types     = .*$", f"types = {{ T = {json.dumps(dtypes)} }}", block)
    return re.sub(r"(?m)^keep      = .*$", 'keep = ["HEADV == HEAD"]', block)


def build(name, modifiers, problems, cudnn, profile="h200", provider="cudnn,cuda", own=(["bf16", "f16"], [64, 128])):
    """OUT/name: the manifest, its sources and its reference; OUT/name.kb: the bundle."""
    folder = OUT / name / "attention"
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(FAMILY, folder, ignore=shutil.ignore_patterns("tuning", "*.toml", "*.jsonl", "jax*.py", "README.md", "__pycache__", "*host*"))
    if profile != "h200":
        (folder / profile).write_text(json.dumps(other_profile(name)))
    (folder / "attention.toml").write_text(manifest(modifiers, problems, cudnn, profile, own))
    subprocess.run([str(ROOT / "build/release/kbundle"), "build", str(folder), "--target", "sm_90a", "--provider", provider,
                    "-o", str(OUT / f"{name}.kb")], check=True)


def other_profile(name):
    profile = json.loads((ROOT / "builder/profiles/h200.json").read_text())
    profile[PROFILE[name]] -= 20
    return profile


def version_of(library):
    """Asked in a process of its own: a second cuDNN of a process answers for the first."""
    ask = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).cudnnGetVersion())"
    number = int(subprocess.run([sys.executable, "-c", ask, library], check=True, capture_output=True, text=True).stdout)
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--modifiers", type=int, default=50)
    args = parser.parse_args()
    print(f"seed {args.seed}")
    grammar = Grammar(args.seed)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    plain = {"softcap": "cap * tanh(s / cap)"}
    build("grid", plain, [list(grid(b)) for b in (False, True)], ["9.19.0"])
    for first in range(0, args.modifiers, MODIFIERS):
        made = {f"modifier{i}": grammar.modifier() for i in range(first, min(first + MODIFIERS, args.modifiers))}
        texts, others = {n: text for n, (text, _, _) in made.items()}, {n: rest for n, (_, *rest) in made.items()}
        build(f"modifiers{first // MODIFIERS}", texts, [list(modified(b, others)) for b in (False, True)], ["9.19.0"],
              own=(["bf16"], [64]))
    few = [[listed_problem(b, "bf16", "bshd", (4, 2), (200, 328), 128, mask=mask) for mask in ("causal", "none")] for b in (False, True)]
    build("live", plain, few, ["9.19.0"], provider="cudnn")
    for name in PROFILE:
        build(name, plain, few, ["9.19.0"], "other.json", "cudnn")
    libraries = os.environ.get("KBUNDLE_CUDNN", "").split(":")
    if len(libraries) == 2:
        some = [list(grid(b))[::5] for b in (False, True)]
        versions = [version_of(library) for library in libraries]
        build("versions", plain, some, versions, provider="cudnn")
        build("newer", plain, some, versions[1:], provider="cudnn")


if __name__ == "__main__":
    main()
