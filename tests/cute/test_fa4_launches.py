"""What kbundle's loader asks the driver for, launching FlashAttention-4 out of a bundle, is what FlashAttention-4's own host code asks
CUDA for: kernels, grids, blocks, shared memory, overlap and every byte of the parameters, on random problems of a random point each way.

A point takes seconds to build, so each run has others; a failure prints the number that KB_SEED repeats them by. Needs a Python with
CuTe DSL and flash-attn-4, as test_fa4.py does, and CUDA's header.
"""

import dataclasses
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import kept
import pytest
from cli.command import Command
from cli.python_provider import edit
from cute.test_fa4 import PYTHON, ROOT, WITH_FA4, compact

HERE = pathlib.Path(__file__).resolve().parent
FORWARD, BACKWARD = "attention.sdpa_forward", "attention.sdpa_backward"
COUNT = 200
ALIGNMENT = 256  # of a region of the workspace
MULTIPROCESSORS = 132  # of the driver that records
SEED = int(os.environ.get("KB_SEED", random.SystemRandom().randrange(1 << 30)))
EVERY = 'HEAD = [64, 96, 128, 192, 256], HEADV = [64, 96, 128, 256], MASK = [0, 1, 2]'
AHEAD = 3  # a mask of those below: compiled as one of 2
VARIANTS = {"fa4", "fa4_grouped", "fa4_gqa", "fa4_ahead", "fa4_ahead_grouped", "fa4_persistent"}


@dataclasses.dataclass
class Point:
    """What is compiled of one direction. dtype: "bf16" or "f16"; mask: 0 none, 1 causal, 2 within a window behind a query's own key, 3 within
    one that ends elsewhere; grouped: query heads share a key head; parts: each has gradients of keys of its own, which a kernel more adds up,
    backward; block: queries of a block, forward; stays: the block takes tile after tile, forward."""
    dtype: str
    head: int
    mask: int
    grouped: bool
    parts: bool
    block: int
    stays: bool

    @property
    def head_v(self):
        return 128 if self.head == 192 else self.head

    @property
    def forward(self):
        return "fa4_ahead" if self.mask == AHEAD else "fa4_persistent" if self.stays else "fa4"

    @property
    def backward(self):
        if self.grouped and not self.parts:
            return "fa4_gqa"
        return ("fa4_ahead" if self.mask == AHEAD else "fa4") + "_grouped" * self.grouped

    @property
    def tile(self):
        """Queries of a block, backward."""
        return 128 if self.head == 64 else 80 if self.head == 128 and self.mask == 0 else 64

    def columns(self, name):
        return self.head_v if name in ("v", "o", "dout", "dv") else self.head

    def tunables(self):
        return {"HEAD": self.head, "HEADV": self.head_v, "MASK": min(self.mask, 2)}

    @classmethod
    def drawn(cls, chance):
        head, mask = chance.choice([64, 96, 128, 192, 256]), chance.randint(0, 3)
        blocks = [64, 128] if head > 96 else [64] if mask >= 2 else [64, 128, 192]
        block, stays = chance.choice(blocks), mask != AHEAD and chance.random() < 0.5
        large = head > 128 or mask < 2  # of blocks that stay
        block = 64 if head == 192 and not stays and mask != AHEAD else block
        grouped, parts = chance.random() < 0.5, mask == AHEAD or chance.random() < 0.5
        return cls(chance.choice(["bf16", "f16"]), head, mask, grouped, grouped and parts, 64 if stays and not large else block, stays)


POINTS = {name: Point.drawn(random.Random(f"{SEED} {name}")) for name in ("forward.toml", "backward.toml")}


def only(point, text):
    """A manifest whose variants of CuTe DSL are this point's."""
    tunables = point.tunables()
    narrowed = ", ".join(f"{name} = [{value}]" for name, value in tunables.items())
    text = re.sub(r"HEAD = \[64, 96, 128(, 192, 256)?\], HEADV = \[64, 96, 128(, 256)?\], MASK = \[(0, 1, )?2\]", narrowed, text)
    # Which block a problem takes is the manifest's choice by its size: here all take the point's.
    text = text.replace("BLOCK = [192, 128, 64]", f"BLOCK = [{point.block}]")
    text = re.sub(r'FA4_BLOCK  = "[^"]*"', f'FA4_BLOCK  = "(SEEN >= 0 || ({{FA4_FEWER}}) ? {point.block} : {{FA4_LARGE}})"', text)
    narrow = '["BLOCK > 0 || ({FA4_SHORT})", "{FA4_CAUSAL} > 0", "{FA4_FULL} > 0"]'
    text = re.sub(r"FA4_NARROW = \[.*?\]", f"FA4_NARROW = {narrow}", text, flags=re.S)
    stays = f'"SMALL {"><"[not point.stays]} 0"'
    text = re.sub(r'FA4_STAYS  = ".*?"', f"FA4_STAYS  = {stays}", text)
    # WIDE is asked of small blocks that stay; large ones of more than 128 columns stay without it.
    text = re.sub(r'FA4_WIDE   = """.*?"""', f'FA4_WIDE   = "SMALL {"><"[not point.stays or point.block > 64]} 0"', text, flags=re.S)
    text = re.sub(r"LARGE (<|>=) 132", "LARGE >= 0", text)
    text = re.sub(r"FA4_GQA   = \[.*?\]", 'FA4_GQA   = ["{FA4_KEYS} * {FA4_SEEN} * {FA4_LATE} > 0"]', text, flags=re.S)
    text = text.replace('name      = "fa4_modified"', 'name      = "fa4_modified"\nabstract  = true')
    text = re.sub(r'keep      = \["HEADV == (.*192 \?|HEAD", "BLOCK).*', f'keep      = ["T == {point.dtype}"]', text)
    both = 'name      = "fa4_grouped"' in text
    for unused in VARIANTS - {point.backward if both else point.forward}:
        text = text.replace(f'name      = "{unused}"', f'name      = "{unused}"\nabstract  = true')
    return text


@pytest.fixture(scope="module")
def recording(command, tmp_path_factory):
    """A folder with a bundle of one point each way, and the driver that records."""
    print(f"KB_SEED={SEED}: {POINTS}")

    def edit_manifests(attention):
        for name, point in POINTS.items():
            assert EVERY in (attention / name).read_text()
            (attention / name).write_text(only(point, (attention / name).read_text()))
        for way in ("forward", "backward"):
            extends = f'extends   = "sdpa_{way}.fa4"\n'
            edit(attention / "packed.toml", (extends, f"{extends}abstract  = true\n"))
        packed = attention / "packed.toml"
        packed.write_text(re.sub(r'(name      = "fa4_\w*"\n)', r"\1abstract  = true\n", packed.read_text()))
        for name in ("ragged.toml", "ragged_backward.toml"):
            text = (attention / name).read_text()
            (attention / name).write_text(re.sub(r'(name      = "fa4\w*"\n)', r"\1abstract  = true\n", text))
    return recording_of(command, tmp_path_factory.mktemp("recording"), edit_manifests)


def recording_of(command, folder, edit_manifests):
    """Kernels come from the cache that build/kernels.kb is built with, by the same keys: what is compared is how they are launched."""
    run = Command(command, folder / "cache" if os.environ.get("KB_TEST_ALL") == "1" else kept.folder().parent, folder)
    run.environment["KBUNDLE_PYTHON"] = PYTHON
    found = {f["part"]: f for f in run("doctor", "--json").json["findings"]}
    include = pathlib.Path(found["nvrtc"]["where"] or "/").parents[1] / "include"
    if not (include / "cuda.h").exists() or not shutil.which("cc"):
        pytest.skip("no cuda.h or no C compiler")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", f"-I{include}", "-o", folder / "libcuda.so.1", HERE / "recording_driver.c"], check=True)
    attention = shutil.copytree(ROOT / "kernels/attention", folder / "attention")
    edit_manifests(attention)
    done = run("build", attention, "-o", folder / "fa4.kb", "--target", "sm_90a", "--provider", "cute", timeout=600)
    assert done.code == 0, done.err
    return folder


class Drawn:
    """A random problem that variant fa4 takes, and where its tensors lie: all of them multiples of 16 and of no more."""

    def __init__(self, chance, point, least):
        mask = point.mask
        size = lambda most: chance.choice([1, 2, 63, 64, 65, 127, 128, 129, 1000, 4096, chance.randint(1, most)])
        self.batch, self.mask, self.point = chance.randint(1, 40), mask, point
        self.keys_heads = chance.randint(1, 20)
        self.heads = self.keys_heads * (chance.randint(2, 8) if point.grouped else 1)
        self.queries = max(least, size(30000))
        self.bottom = chance.random() < 0.5  # or, without a mask, more keys
        self.keys = self.queries + (size(3000) if self.bottom else 0)
        self.layout, self.scale = chance.choice(["bshd", "bhsd"]), chance.uniform(0.01, 2)
        self.window, self.window_right = chance.randint(0, 5000) if mask == 2 else -1, -1
        if mask == AHEAD:  # and every query has a key
            self.keys = size(30000)
            short, some = max(0, self.queries - self.keys), lambda least: chance.randint(least, least + 5000)
            sides = chance.choice([(False, True), (True, False), (True, True)])
            self.window, self.window_right = (some(short * of) if given else -1 for given, of in zip(sides, (not self.bottom, self.bottom)))
        self.address = lambda: (chance.randint(1 << 30, 1 << 43) | 1) * 16

    def of_section(self):
        """Heads whose keys and values, or twice as much, 50 MB hold, a power of two."""
        block, head = self.point.block, self.point.head
        fit = max(1, 52428800 // (self.keys * (head + self.point.head_v) * 2))
        fit, tiles = 1 << fit.bit_length() - 1, -(-self.queries // block)
        at_once = 132 if block > 64 or head > 192 else 264 if head > 96 else 396
        halved = (self.heads <= 2 * self.keys_heads and self.keys <= 800 and self.batch * self.heads * tiles >= 3 * at_once
                  and 5 * fit * tiles >= 14 * at_once)
        return fit // (1 + halved)

    @property
    def attributes(self):
        masks = ("none", "none") if self.mask == 0 else ("none", "bottom_right") if self.mask == AHEAD else ("causal", "causal_bottom_right")
        return {"scale": self.scale, "layout": self.layout, "mask": masks[self.bottom], "window": self.window, "window_right": self.window_right}

    def windows(self):
        """As the kernel sees them: of one that ends elsewhere both ends, from the diagonal of the last query and the last key."""
        if self.mask != AHEAD:
            return [self.window]
        moved = 0 if self.attributes["mask"] == "bottom_right" else self.keys - self.queries
        return [1 << 30 if self.window < 0 else self.window + moved, 1 << 30 if self.window_right < 0 else self.window_right - moved]

    def dims(self, name, tokens, heads):
        columns = self.point.columns(name)
        return [self.batch, tokens, heads, columns] if self.layout == "bshd" else [self.batch, heads, tokens, columns]

    def seen(self, name, address, tokens, heads):
        """As the kernel sees it: sequences before heads."""
        strides = compact(self.dims(name, tokens, heads))
        if self.layout == "bhsd":
            strides[1], strides[2] = strides[2], strides[1]
        shape = [self.batch, tokens, heads, self.point.columns(name)]
        return {"address": address, "elsewhere": address, "shape": shape, "strides": strides}

    def plain(self, address, shape):
        return {"address": address, "elsewhere": address, "shape": shape, "strides": compact(shape)}


def forward_of(drawn, with_stats):
    """(what the loader is asked, the arguments of FlashAttention-4's function)"""
    q, k, v, o = (drawn.address() for _ in range(4))
    stats = drawn.address() if with_stats else 0
    queries, keys = (drawn.queries, drawn.heads), (drawn.keys, drawn.keys_heads)
    shapes = [drawn.dims("q", *queries), drawn.dims("k", *keys), drawn.dims("v", *keys)]
    asked = {"op": FORWARD, "operands": [[drawn.point.dtype, one] for one in shapes] + [None] * 6,
             "attributes": drawn.attributes | {"with_stats": with_stats},
             "addresses": [q, k, v, *[None] * 6], "results": [o, stats or None], "workspace": None}
    given = [drawn.seen("q", q, *queries), drawn.seen("k", k, *keys), drawn.seen("v", v, *keys), drawn.seen("o", o, *queries),
             drawn.plain(stats, [drawn.batch, drawn.heads, drawn.queries if with_stats else 0]), drawn.scale,
             *drawn.windows(), *[MULTIPROCESSORS, drawn.of_section()] * drawn.point.stays]
    return asked, {"forward": given}


def backward_of(drawn):
    q, k, v, o, dout, stats, dq, dk, dv, workspace = (drawn.address() for _ in range(10))
    workspace = workspace // ALIGNMENT * ALIGNMENT
    queries, keys = (drawn.queries, drawn.heads), (drawn.keys, drawn.keys_heads)
    shapes = [drawn.dims(name, *(keys if name in "kv" else queries)) for name in ("q", "k", "v", "o", "dout")]
    asked = {"op": BACKWARD, "attributes": drawn.attributes, "workspace": workspace, "addresses": [q, k, v, o, dout, stats, *[None] * 6],
             "operands": [*[[drawn.point.dtype, shape] for shape in shapes],
                          ["f32", [drawn.batch, drawn.heads, drawn.queries]], *[None] * 6], "results": [dq, dk, dv, None]}
    head, head_v, tile = drawn.point.head, drawn.point.head_v, drawn.point.tile
    padded = -(-drawn.queries // tile) * tile
    rows, sums = [drawn.batch, drawn.heads, padded], [drawn.batch, drawn.heads, padded * head]
    of_dk, of_dv = ([drawn.batch, drawn.keys, drawn.heads, columns] for columns in (head, head_v))
    at, regions = workspace, []
    for shape, size in ((rows, 4), (rows, 4), (sums, 4), (of_dk, 2), (of_dv, 2)):
        regions.append(drawn.plain(at, shape))
        at += -(-size * math.prod(shape) // ALIGNMENT) * ALIGNMENT
    products, stats2, dq_sum, dk_parts, dv_parts = regions
    seen = {name: drawn.seen(name, address, *size) for name, address, size in
            (("q", q, queries), ("o", o, queries), ("dout", dout, queries), ("dq", dq, queries), ("k", k, keys), ("v", v, keys), ("dk", dk, keys),
             ("dv", dv, keys))}
    given = {"prepare": [seen["o"], seen["dout"], products, drawn.plain(stats, [drawn.batch, drawn.heads, drawn.queries]), stats2, dq_sum],
             "gradients": [seen["q"], seen["k"], seen["v"], seen["dout"], stats2, products, dq_sum,
                           *([dk_parts, dv_parts] if drawn.point.parts else [seen["dk"], seen["dv"]]), drawn.scale, *drawn.windows()],
             "finish": [dq_sum, seen["dq"], drawn.scale]}
    return asked, given | ({"sum_heads": [dk_parts, seen["dk"], dv_parts, seen["dv"]]} if drawn.point.parts else {})


NAMES = {"forward": "q k v o stats scale window", "prepare": "o dout products stats stats2 dq_sum",
         "gradients": "q k v dout stats2 products dq_sum {dk} {dv} scale window", "finish": "dq_sum dq scale",
         "sum_heads": "dk_parts dk dv_parts dv"}


def declared(name, point):
    """An argument as the builder describes it to the child."""
    if name in ("scale", "window", "window_right", "sm_count", "cached"):
        return {"type": "f32" if name == "scale" else "i32"}
    if name.endswith("_sum") or name in ("stats", "stats2", "products"):
        return {"name": name, "dtype": "f32", "shape": [None] * 3, "strides": [None, None, 1]}
    columns = point.columns(name.removesuffix("_parts"))
    return {"name": name, "dtype": point.dtype, "shape": [None, None, None, columns], "strides": [None, None, None, 1]}


def arguments(step, point):
    names = {name: f"{name}_parts" if point.parts else name for name in ("dk", "dv")}
    given = NAMES[step].format(**names).split()
    given += ["window_right"] * (given[-1] == "window" and point.mask == AHEAD) + ["sm_count", "cached"] * (step == "forward" and point.stays)
    return [declared(name, point) for name in given]


def launched(folder, pairs, source, tunables, arguments_of, others=None):
    """(by the loader, by FlashAttention-4's host code): of each problem its launches. arguments_of: those of a step, as declared; others: of
    steps that say what they depend on, {step: (source, tunables)}."""
    requests = [{"folder": str(folder), "function": step, "target": {"name": "sm_90a", "major": 9, "minor": 0, "shared": 232448},
                 **dict(zip(("source", "tunables"), (others or {}).get(step, (source, tunables)))), "arguments": arguments_of(step),
                 "problems": [{"sm_count": MULTIPROCESSORS, "arguments": given[step]} for _, given in pairs]} for step in pairs[0][1]]
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT / "tests")}
    dsl = {"CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_NO_CACHE": "1", "CUTE_DSL_DUMP_DIR": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    made = folder / "cute.json"
    run(PYTHON, ["cute", made], requests, variables | dsl, folder)
    steps = json.loads(made.read_text())
    kernels = {symbol: sizes for step in steps for symbol, sizes in step["kernels"].items()}
    (folder / "kernels.txt").write_text("".join(f"{name} {len(sizes)} {' '.join(map(str, sizes))}\n" for name, sizes in kernels.items()))
    driver = {"RECORDED_KERNELS": str(folder / "kernels.txt"), "RECORDED_LAUNCHES": str(folder / "launches.txt"),
              "LD_LIBRARY_PATH": str(folder.parent), "KBUNDLE_LIBRARY": os.environ["KBUNDLE_LIBRARY"]}
    asked = {"bundle": str(folder.parent / "fa4.kb"), "problems": [one for one, _ in pairs]}
    run(sys.executable, ["loader"], asked, variables | driver, folder)
    return (folder / "launches.txt").read_text().splitlines(), [sum((step["launches"][i] for step in steps), []) for i in range(len(pairs))]


def run(python, arguments, request, variables, folder):
    done = subprocess.run([python, HERE / "launch_both_ways.py", *arguments], input=json.dumps(request), env=variables, cwd=folder,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


def compare(lines, wanted):
    assert len(lines) == sum(map(len, wanted))
    for number, launch in enumerate(sum(wanted, [])):
        symbol, grid, block, cluster, overlaps, shared, allowed, parameters = lines[number].split()
        sizes = [[int(size) for size in text.split(",")] for text in (grid, block, cluster)]
        assert [symbol, *sizes, int(overlaps), int(shared)] == launch[:6], number
        assert parameters == launch[6], (number, symbol)
        assert int(shared) <= max(48 << 10, int(allowed))


@WITH_FA4
def test_the_loader_launches_forward_as_its_own_host_code(recording):
    folder, point, chance = recording / "forward", POINTS["forward.toml"], random.Random(f"{SEED} forward")
    folder.mkdir()
    pairs = [forward_of(Drawn(chance, point, 17), with_stats=chance.random() < 0.5) for _ in range(COUNT)]
    compare(*launched(folder, pairs, f"{point.forward}.py", point.tunables() | {"BLOCK": point.block}, lambda step: arguments(step, point)))


@WITH_FA4
def test_the_loader_launches_backward_as_its_own_host_code(recording):
    folder, point, chance = recording / "backward", POINTS["backward.toml"], random.Random(f"{SEED} backward")
    folder.mkdir()
    pairs = [backward_of(Drawn(chance, point, 1)) for _ in range(COUNT)]
    source = {"fa4_ahead": "fa4_ahead.py", "fa4_gqa": "fa4_gqa.py"}.get(point.backward.removesuffix("_grouped"), "fa4_backward.py")
    columns = {"HEAD": point.head, "HEADV": point.head_v}
    others = {"prepare": columns | {"TILE": point.tile}, "finish": columns | {"TILE": point.tile}, "sum_heads": columns}
    compare(*launched(folder, pairs, source, point.tunables(), lambda step: arguments(step, point),
                      {step: ("fa4_backward.py", given) for step, given in others.items()}))
