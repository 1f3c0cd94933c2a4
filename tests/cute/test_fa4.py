"""FlashAttention-4's forward is launched as on the H200 that ran these very bytes (fa4_launches.json: four shapes of one cubin, right and
faster than cuDNN), and two compilations of it give the same cubin.

Needs a Python with CuTe DSL and flash-attn-4, without torch: KBUNDLE_PYTHON, else the one that runs the tests.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("KBUNDLE_PYTHON", sys.executable)
VERSION = subprocess.run([PYTHON, "-c", "import importlib.metadata as m; print(m.version('nvidia-cutlass-dsl'), m.version('flash-attn-4'))"],
                         capture_output=True, text=True).stdout.strip()
WITH_FA4 = pytest.mark.skipif(VERSION != "4.8.1 4.0.0b36", reason=f"{PYTHON} has {VERSION or 'neither of them'}")
LAUNCHES = json.loads((pathlib.Path(__file__).parent / "fa4_launches.json").read_text())

# The child without its pipes: one request from standard input.
DRIVER = """
import json, pathlib, sys
here, out = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(here / "builder/provider/cute"))
import recorder
recorder.RECORD_C = (here / "builder/provider/cute/record.c").read_text()
exec((here / "builder/provider/cute/child.py").read_text().split("if sys.argv[1] ==")[0])
child = Child(Source(str(here / "kernels/attention"), "fa4.py"), out, json.load(sys.stdin))
import elf
kernel, arguments, options = child.ask()
child.compile_into(child.folder, kernel, arguments, options)
cubin = open(os.path.join(child.folder, CUBIN), "rb").read()
maker = recorder.Recorder(child.folder, "c++", os.path.join(child.folder, HOST), cubin, FUNCTION)
found = [Child.recorded(one, 0) | {"unwritten": sorted(one.unwritten[0])} for one in child.record(maker, at_launch(kernel, arguments))]
json.dump({"recorded": found, "sizes": maker.param_bytes}, sys.stdout)
"""


def compact(shape):
    strides = [1]
    for size in shape[:0:-1]:
        strides.insert(0, strides[0] * size)
    return strides


def problem(B, S, H, D):
    tensors = [([B, S, H, D], i << 28) for i in range(4)] + [([B, H, S], 4 << 28)]
    placed = [{"address": 0x7F0000000000 + at, "elsewhere": 0x7E0000000000 + at, "shape": shape, "strides": compact(shape)}
              for shape, at in tensors]
    return {"sm_count": 132, "arguments": [*placed, D ** -0.5, -1]}


def record(folder):
    folder.mkdir()
    whole = [{"name": name, "dtype": "bf16", "shape": [None, None, None, 128], "strides": [None, None, None, 1]} for name in "qkvo"]
    request = {"function": "forward", "target": {"name": "sm_90a", "major": 9, "minor": 0, "shared": 232448},
               "tunables": {"HEAD": 128, "HEADV": 128, "MASK": 1, "BLOCK": 128},
               "arguments": [*whole, {"name": "stats", "dtype": "f32", "shape": [None] * 3, "strides": [None, None, 1]},
                             {"type": "f32"}, {"type": "i32"}],
               "problems": [problem(**one["problem"]) for one in LAUNCHES]}
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_NO_CACHE": "1",
                 "CUTE_DSL_DUMP_DIR": str(folder), "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0"}
    done = subprocess.run([PYTHON, "-c", DRIVER, ROOT, folder / "kernel"], input=json.dumps(request), env=variables, cwd=folder,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout[done.stdout.index('{"recorded"'):])


@WITH_FA4
def test_the_recorded_bytes_are_those_that_ran_and_two_cubins_are_one(tmp_path):
    found = record(tmp_path / "a")
    for launch, known in zip(found["recorded"], LAUNCHES):
        assert (launch["grid"], launch["block"], launch["shared"]) == (known["grid"], known["block"], known["shared"])
        ran = bytearray(bytes.fromhex("".join(known["params"])))
        for at in launch["unwritten"]:
            ran[at] = 0
        assert launch["params"] == ran.hex(), known["problem"]
    assert [len(one) // 2 for one in LAUNCHES[0]["params"]] == found["sizes"][0]
    assert record(tmp_path / "b") == found
    assert (tmp_path / "a/kernels.cubin").read_bytes() == (tmp_path / "b/kernels.cubin").read_bytes()
