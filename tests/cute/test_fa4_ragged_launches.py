"""What kbundle's loader asks the driver for, launching FlashAttention-4 on ragged sequences, is what the functions of CuTe DSL ask CUDA for:
test_fa4_launches.py of the ragged ops, on random problems of a random point each way, with lengths and without.
"""

import functools
import random
import re

import pytest
from cute.test_fa4 import WITH_FA4, compact
from cute.test_fa4_launches import ALIGNMENT, SEED, compare, launched, recording_of

COUNT = 100
CHANCE = random.Random(f"{SEED} ragged")
HEAD, MASK, GROUPED = CHANCE.choice([64, 128]), CHANCE.randint(0, 2), CHANCE.randint(0, 1)
OF_KEYS = GROUPED == 1 and CHANCE.random() < 0.5  # a block of gradients takes its keys with all heads, and adds nothing up in memory
BACKWARD = ("fa4_ragged_gqa.py", "gradients", {}) if OF_KEYS else ("fa4_ragged_backward.py", "gradients", {"GROUPED": GROUPED})
LARGE = 128 if HEAD > 96 else 192
BLOCK = CHANCE.choice([64, LARGE])
IN_WINDOW = BLOCK if HEAD > 96 else 64  # of few columns a window has no large block
BLOCK = IN_WINDOW if MASK == 2 else BLOCK
TILE = 128 if HEAD == 64 else 64 if MASK else 80


@pytest.fixture(scope="module")
def recording(command, tmp_path_factory):
    print(f"KB_SEED={SEED}: {HEAD} columns, mask {MASK}, {BACKWARD}, blocks of {BLOCK}")

    def edit_manifests(attention):
        for name in ("forward.toml", "backward.toml", "packed.toml"):
            text = re.sub(r'(name      = "fa4\w*"\n)', r"\1abstract  = true\n", (attention / name).read_text())
            text = re.sub(r'(extends   = "sdpa_\w+\.fa4"\n)', r"\1abstract  = true\n", text)
            (attention / name).write_text(text)
        for name in ("ragged.toml", "ragged_backward.toml"):
            text = (attention / name).read_text().replace("HEAD = [64, 128], MASK = [0, 1, 2]", f"HEAD = [{HEAD}], MASK = [{MASK}]")
            text = text.replace("HEAD = [64, 128], MASK = [2]", f"HEAD = [{HEAD}], MASK = [2]")
            text = text.replace("MASK = [2], BLOCK = [192, 128, 64]", f"MASK = [2], BLOCK = [{IN_WINDOW}]")
            text = text.replace("BLOCK = [192, 128, 64]", f"BLOCK = [{BLOCK}]").replace("BLOCK = [192, 128]", f"BLOCK = [{LARGE}]")
            text = text.replace("GROUPED = [0, 1]", f"GROUPED = [{GROUPED}]")
            # All take what is drawn, whatever their sizes.
            text = re.sub(r'"BLOCK == \(SEEN <= .*\)"', '"SEEN >= 0"', text)
            text = re.sub(r'FA4_GQA     = ".*"', 'FA4_GQA     = "{FA4_LONGEST} + {FA4_USUAL} > 0"', text)
            if not OF_KEYS:
                text = text.replace('name      = "fa4_gqa"', 'name      = "fa4_gqa"\nabstract  = true')
            (attention / name).write_text(text)
    return recording_of(command, tmp_path_factory.mktemp("ragged"), edit_manifests)


class Drawn:
    def __init__(self, chance, ahead):
        self.kv_heads = chance.randint(1, 20)
        self.heads = self.kv_heads * (chance.randint(2, 8) if GROUPED else 1)
        rows = lambda: chance.choice([1, 2, 63, 64, 65, 128, 129, 1000, 4096, chance.randint(1, 60000)])
        self.rows, self.keys, self.offsets = rows(), rows(), chance.randint(2, 300)
        self.bounds = chance.randint(1, 5000), chance.randint(1, 5000)
        self.ahead, self.scale = ahead, chance.uniform(0.01, 2)
        masks = ["none", "bottom_right"] if ahead else ["none"] if MASK == 0 else ["causal", "causal_bottom_right"]
        self.mask, self.windows = chance.choice(masks), [chance.randint(0, 5000) if MASK == 2 else -1, -1]
        if ahead:
            self.windows = chance.choice([[chance.randint(0, 5000), -1], [-1, chance.randint(0, 5000)], [chance.randint(0, 5000), 30]])
        self.address = lambda: (chance.randint(1 << 30, 1 << 43) | 1) * 16

    @property
    def attributes(self):
        return {"scale": self.scale, "mask": self.mask, "window": self.windows[0], "window_right": self.windows[1], "max_queries": self.bounds[0],
                "max_keys": self.bounds[1]}

    def numbers(self):
        windows = [1 << 30 if one < 0 else one for one in self.windows] if self.ahead else self.windows[:1]
        return [self.scale, *windows, *self.bounds, int(self.mask in ("causal", "none") if self.ahead else self.mask == "causal")]

    def stats(self, address):
        shape = [self.heads, self.rows] if address else [0, 0]
        return {"address": address, "elsewhere": address, "shape": shape, "strides": [1, self.heads]}


def placed(address, *shape):
    return {"address": address, "elsewhere": address, "shape": list(shape), "strides": compact(shape)}


def regions(at, shapes):
    """Tensors of a workspace, one after another: of 2 bytes an element where they have three axes, else of 4."""
    for shape in shapes:
        yield placed(at, *shape)
        size = 2 if len(shape) == 3 else 4
        for extent in shape:
            size *= extent
        at += -(-size // ALIGNMENT) * ALIGNMENT


def drawn(chance, backward, gaps, ahead, in_float):
    """(what the loader is asked, the arguments of the function)"""
    one, names = Drawn(chance, ahead), ["q", "k", "v", "o", "dout"] if backward else ["q", "k", "v"]
    of = {name: (one.keys, one.kv_heads, HEAD) if name[-1] in "kv" else (one.rows, one.heads, HEAD)
          for name in ("q", "k", "v", "o", "dout", "dq", "dk", "dv")}
    tensor = {name: placed(one.address(), *shape) for name, shape in of.items()}
    stats = one.stats(one.address() if backward or chance.random() < 0.5 else 0)
    offsets, workspace = [placed(one.address(), one.offsets) for _ in range(2)], one.address() // ALIGNMENT * ALIGNMENT
    offsets += [placed(one.address(), one.offsets - 1) for _ in range(2 * gaps)]  # and lengths
    tile = 64 if ahead and HEAD == 128 else TILE
    padded, keys_padded = ((rows + one.offsets * of - 1) // of * of for rows, of in ((one.rows, tile), (one.keys, 128)))
    shapes, kv_sums = [[one.offsets], [one.offsets], [2 * (one.offsets - 1)], [one.offsets - 1]], one.kv_heads if in_float else 0
    if backward:
        shapes += [[one.heads, padded], [one.heads, padded], [one.heads, padded * HEAD], *[[kv_sums, keys_padded * HEAD]] * 2]
    whole = [of[name] for name in (("q", "k", "v", "dout") if backward else ("v",)) if gaps]
    places = list(regions(workspace, shapes + whole))
    places = places[:4] + places[len(shapes):] + places[4:len(shapes)]  # as arguments copies come before sums
    results = [tensor[name] for name in (("dq", "dk", "dv") if backward else ("o",))]
    given = [*[tensor[name] for name in names], *([stats] if backward else [tensor["o"], stats]), *offsets, *(results if backward else []), *places,
             *one.numbers()]
    operands = [["bf16", of[name]] for name in names] + ([["f32", (one.rows, one.heads)]] if backward else [])
    operands += [["i32", tuple(place["shape"])] for place in offsets]
    addresses = [tensor[name]["address"] for name in names] + ([stats["address"]] if backward else []) + [place["address"] for place in offsets]
    absent = [None] * (2 if gaps else 4)
    asked = {"op": f"attention.sdpa_ragged_{'backward' if backward else 'forward'}", "operands": operands + absent, "workspace": workspace,
             "attributes": one.attributes | ({} if backward else {"with_stats": bool(stats["address"])}), "addresses": addresses + absent,
             "results": [result["address"] for result in results] + ([] if backward else [stats["address"] or None])}
    return asked, {"gradients" if backward else "forward": given}


def arguments(gaps, ahead, step):
    backward = step == "gradients"
    rows = lambda *names: [{"name": name, "dtype": "bf16", "shape": [None, None, HEAD], "strides": [None, HEAD, 1]} for name in names]
    flat = lambda *names: [{"name": name, "dtype": "i32", "shape": [None], "strides": [1]} for name in names]
    stats = {"name": "stats", "dtype": "f32", "shape": [None, None], "strides": [1, None]}
    sums = ("products", "stats2", "dq_sum", "dk_sum", "dv_sum") if backward else ()
    whole = () if not gaps else ("whole_q", "whole_k", "whole_v", "whole_dout") if backward else ("whole_v",)
    return [*rows("q", "k", "v", "o", *("dout",) * backward), stats, *flat("q_offsets", "kv_offsets", *("q_lengths", "kv_lengths") * gaps),
            *rows(*("dq", "dk", "dv") * backward), *flat("q_rows", "kv_rows", "lengths", "k_lengths"), *rows(*whole),
            *[{"name": name, "dtype": "f32", "shape": [None, None], "strides": [None, 1]} for name in sums], {"type": "f32"},
            *[{"type": "i32"}] * (4 + ahead)]


@WITH_FA4
@pytest.mark.parametrize("source, step, tunables", [
    ("fa4_ragged.py", "forward", {"BLOCK": BLOCK}),
    pytest.param(*BACKWARD, id="either gradients"),  # processes that draw otherwise are to collect the same tests
    ("fa4_gaps.py", "forward", {"BLOCK": LARGE}), ("fa4_gaps_backward.py", "gradients", {}),
    ("fa4_ragged_ahead.py", "forward", {"BLOCK": IN_WINDOW}), ("fa4_ragged_ahead.py", "gradients", {"GROUPED": GROUPED}),
    ("fa4_gaps_ahead.py", "forward", {"BLOCK": LARGE}), ("fa4_gaps_ahead.py", "gradients", {})])
def test_the_loader_launches_as_the_functions_do(recording, source, step, tunables):
    folder, chance, gaps, ahead = recording / f"{source} {step}", random.Random(f"{SEED} {source} {step}"), "gaps" in source, "ahead" in source
    folder.mkdir()
    in_float = gaps or tunables.get("GROUPED") == 1  # sums of dk and dv
    pairs = [drawn(chance, step == "gradients", gaps, ahead, in_float) for _ in range(COUNT)]
    compare(*launched(folder, pairs, source, {"HEAD": HEAD, "MASK": 2 if ahead else MASK} | tunables, functools.partial(arguments, gaps, ahead)))
