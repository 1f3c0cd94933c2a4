"""Makes build/attention_modifiers/modifiers.kb, which section attention_modifiers runs: FlashAttention-4's kernels with random score modifiers
and those that are known best, for bf16 and 128 columns; and modifiers.json, which says what they are.

    python tests/gpu/unlisted/modifier_bundle.py [--seed N] [--random N]
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUT = ROOT / "build/attention_modifiers"
sys.path.insert(0, str(ROOT / "tests"))
from conformance import modified_attention  # noqa: E402

KNOWN = {"softcap": ("cap * tanh(s / cap)", [30.0]), "fast_softcap": ("cap * fast_tanh(s / cap)", [30.0]), "alibi": ("s + slope[h] * (k - q)", [])}


def drawn(chance):
    """(batches, queries, keys, heads, heads of keys, mask): no shape that the family lists."""
    queries = chance.randint(500, 3500)
    more = chance.choice([0, 0, chance.randint(1, 900)])
    mask = chance.choice(["none", "causal_bottom_right" if more else "causal"])
    kv_heads = chance.randint(2, 10)
    return chance.randint(1, 3), queries, queries + more, kv_heads * chance.choice([1, 1, 2, 4]), kv_heads, mask


def narrowed(variant):
    return re.sub(r"(?m)^tunables  = .*$", 'tunables  = { HEAD = [128], MASK = [2], MOD = "score_mods"%s }'
                  % (", BLOCK = [128]" if "BLOCK" in variant else ""), variant)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--random", type=int, default=10)
    args = parser.parse_args()
    print(f"seed {args.seed}")
    chance, grammar = random.Random(args.seed), modified_attention.Grammar(args.seed)
    modifiers = dict(KNOWN)
    for i in range(args.random):
        text, _, values = grammar.modifier()
        modifiers[f"modifier{i}"] = (text, values)
    cases = [{"name": name, "text": text, "values": values, "shape": drawn(chance)} for name, (text, values) in modifiers.items()]
    cases[0]["shape"] = cases[1]["shape"] = (4, 2048, 2048, 16, 16, "none")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    (OUT / "modifiers.json").write_text(json.dumps({"seed": args.seed, "cases": cases}, indent=1) + "\n")
    texts = {name: text for name, (text, _) in modifiers.items()}
    none = {"T": "bf16", "q": [1, 64, 1, 128], "k": [1, 64, 1, 128], "v": [1, 64, 1, 128], "scale": 1.0}
    folder = OUT / "attention"
    modified_attention.write(folder, texts, {"sdpa_forward": [none], "sdpa_backward": [none]}, ("fa4_modified",), narrowed)
    subprocess.run([str(ROOT / "build/release/kbundle"), "build", str(folder), "--target", "sm_90a", "--provider", "cute", "-o",
                    str(OUT / "modifiers.kb")], check=True)


if __name__ == "__main__":
    main()
