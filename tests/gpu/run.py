"""Runs the sections of the GPU check, each in its own process with its own time limit, and writes what
they found to OUT/<device>.json and OUT/<device>.md. A section that crashes or hangs costs only itself.
"""

import argparse
import ctypes
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/gpu"
# name: (arguments, seconds allowed, GPUs needed)
SECTIONS = {
    "conformance": (["variants.py", "softmax", "permutation", "others"], 150, 1),
    "conformance_flash_forward": (["variants.py", "--own", "attention", "forward/"], 400, 1),
    "conformance_paged": (["variants.py", "--own", "attention", "paged_attention/"], 150, 1),
    "conformance_flash_backward": (["variants.py", "--own", "attention", "backward/"], 400, 1),
    "conformance_cudnn_forward": (["variants.py", "--libraries", "attention", "forward/"], 150, 1),
    "conformance_cudnn_backward": (["variants.py", "--libraries", "attention", "backward/"], 150, 1),
    "conformance_matmul": (["variants.py", "matmul"], 300, 1),
    "conformance_quantize": (["variants.py", "quantize"], 150, 1),
    "conformance_norm": (["variants.py", "norm"], 300, 1),
    "conformance_grouped": (["variants.py", "grouped"], 150, 1),
    "conformance_cross_entropy": (["variants.py", "cross_entropy"], 150, 1),
    "conformance_router": (["variants.py", "router"], 150, 1),
    "modes": (["runtime/modes.py", "softmax", "norm", "matmul", "cross_entropy", "router", "permutation", "quantize", "grouped"], 300, 1),
    "modes_attention": (["runtime/modes.py", "attention"], 300, 1),
    "modes_model": (["runtime/modes.py", "--model"], 400, 1),
    "downstream": (["runtime/downstream.py"], 60, 1),
    "page_commands": (["runtime/page_commands.py"], 400, 1),
    "accuracy": (["accuracy.py"], 120, 1),
    "bandwidth": (["bandwidth.py"], 60, 1),
    "softmax_longest": (["softmax_longest.py"], 150, 1),
    "cliffs": (["cliffs.py"], 120, 1),
    "permutation": (["permutation.py"], 120, 1),
    "quantize": (["layers/quantize.py"], 240, 1),
    "norm": (["layers/norm.py"], 240, 1),
    "grouped": (["layers/grouped.py"], 300, 1),
    "cross_entropy": (["layers/cross_entropy.py"], 400, 1),
    "router": (["layers/router.py"], 240, 1),
    "moe": (["layers/moe.py"], 200, 1),
    "attention": (["attention.py"], 200, 1),
    "attention_forms": (["attention_forms.py"], 480, 1),
    "attention_ragged": (["attention_ragged.py"], 400, 1),
    "decode": (["decode.py"], 240, 1),
    "attention_grid": (["attention_grid.py"], 400, 1),
    "attention_modifiers": (["unlisted/modifiers.py"], 400, 1),
    "small_tiles": (["unlisted/small_tiles.py"], 200, 1),
    "attention_jax": (["attention_jax.py"], 90, 1),
    "attention_peers": (["attention_peers.py"], 480, 1),
    "unlisted_attention": (["unlisted/attention.py"], 480, 1),
    "unlisted_ahead": (["unlisted/ahead.py"], 400, 1),
    "unlisted_order": (["unlisted/order.py"], 400, 1),
    "unlisted_gpt": (["unlisted/gpt.py"], 400, 1),
    "unlisted_products": (["unlisted/products.py"], 480, 1),
    "unlisted_programs": (["unlisted/programs.py"], 300, 1),
    "unlisted_losses": (["unlisted/linear_losses.py"], 240, 1),
    "choices": (["unlisted/choices.py"], 200, 1),
    "attention_costs": (["attention_costs.py"], 300, 1),
    "matmul": (["matmul.py"], 150, 1),
    "matmul_jax": (["matmul_jax.py"], 340, 1),
    "fp8_dense": (["layers/fp8_dense.py"], 400, 1),
    "matmul_costs": (["matmul_costs.py"], 200, 1),
    "graphs": (["runtime/graphs.py"], 240, 1),
    "c_graph": (["runtime/c_graph.py"], 60, 1),
    "calls": (["runtime/calls.py"], 120, 1),
    "stages": (["runtime/stages.py"], 60, 1),
    "first_use": (["runtime/first_use.py"], 200, 1),
    "bench": (["bench.py"], 60, 1),
    "leaks": (["runtime/leaks.py"], 150, 1),
    "speed": (["speed.py"], 200, 1),
    "triton_ops": (["triton_ops.py"], 240, 1),
    "warp_ops": (["warp_ops.py"], 150, 1),
    "cute_ops": (["cute_ops.py"], 120, 1),
    "ahead_of_time": (["frameworks/ahead_of_time.py"], 200, 1),
    "pytorch": (["frameworks/pytorch.py"], 120, 1),
    "tvm_ffi": (["frameworks/dlpack_functions.py"], 120, 1),
    "formulas": (["frameworks/formulas.py"], 300, 1),
    "sanitizer": (["sanitizer.py"], 200, 1),
    "sanitizer_attention": (["sanitizer.py", "attention"], 400, 1),
    "sanitizer_modifiers": (["sanitizer.py", "modifiers"], 300, 1),
    "sanitizer_norm": (["sanitizer.py", "norm"], 400, 1),
    "sanitizer_cross_entropy": (["sanitizer.py", "cross_entropy"], 200, 1),
    "sanitizer_grouped": (["sanitizer.py", "grouped"], 300, 1),
    "sanitizer_quantize": (["sanitizer.py", "quantize"], 200, 1),
    "sanitizer_router": (["sanitizer.py", "router"], 200, 1),
    "sanitizer_matmul": (["sanitizer.py", "matmul"], 200, 1),
    "from_wheel": (["runtime/from_wheel.py"], 120, 1),
    "two_gpus": (["runtime/two_gpus.py"], 560, 2),
    "other_device": (["runtime/other_device.py"], 60, 2),
    "sharded": (["runtime/sharded.py"], 240, 2),
}


def devices():
    """Names of the GPUs, the driver's CUDA version, and its own version; empty without a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return [], "", ""
    if driver.cuInit(0):
        return [], "", ""
    count, version, names = ctypes.c_int(), ctypes.c_int(), []
    driver.cuDeviceGetCount(ctypes.byref(count))
    driver.cuDriverGetVersion(ctypes.byref(version))
    for ordinal in range(count.value):
        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(name, 256, ordinal)
        names.append(name.value.decode())
    try:
        own = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                             capture_output=True, text=True).stdout.split("\n")[0].strip()
    except FileNotFoundError:
        own = ""
    return names, f"{version.value // 1000}.{version.value % 1000 // 10}", own


def bundle_id(path=ROOT / "build/kernels.kb"):
    """The content id of the bundle that is measured, as `kbundle inspect` prints it; None without one."""
    if not path.exists():
        return None
    with open(path, "rb") as file:
        return file.read(96)[64:].hex()


def versions():
    found = {"python": platform.python_version()}
    for name in ("jax", "jaxlib", "torch", "triton", "warp-lang", "numpy"):
        try:
            found[name] = __import__("importlib.metadata", fromlist=["version"]).version(name)
        except Exception:
            found[name] = None
    return found


def environment(result, out, limit):
    env = dict(os.environ, KB_RESULT=str(result), KB_OUT=str(out), KB_SECONDS=str(limit), PYTHONUNBUFFERED="1")
    env.setdefault("KBUNDLE_LIBRARY", str(ROOT / "build/release/libkbundle.so"))
    env["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "ffi/python"), str(ROOT / "tests"), str(HERE), str(ROOT / "scripts"),
         *filter(None, [env.get("PYTHONPATH")])])
    env.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    env.setdefault("OPENBLAS_NUM_THREADS", "4")  # references thread themselves, and sections may run side by side
    return env


def run_section(name, out, log):
    arguments, limit, _ = SECTIONS[name]
    print(f"\n== {name}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        child = subprocess.Popen([sys.executable, str(HERE / arguments[0]), *arguments[1:]], cwd=ROOT,
                                 env=environment(result, out, limit), start_new_session=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(child.pid, signal.SIGKILL))
        signal.alarm(limit)
        for line in child.stdout:
            log.write(line)
            print(line, end="", flush=True)
        code = child.wait()
        signal.alarm(0)
        found = json.loads(result.read_text()) if result.exists() else {"bars": [], "facts": {}, "tables": []}
    found["seconds"] = round(time.monotonic() - start, 1)
    missed = sum(not b["holds"] for b in found["bars"])
    if code == -signal.SIGKILL and found["seconds"] >= limit:
        found["error"] = f"ran past its {limit} s"
    elif code and not missed:
        found["error"] = f"ended with code {code}"
    elif not found["bars"]:
        found["error"] = "checked nothing"
    found["passed"] = not missed and "error" not in found
    print(f"== {name}: {'passed' if found['passed'] else 'FAILED'} in {found['seconds']} s"
          f"{' (' + found['error'] + ')' if 'error' in found else ''}", flush=True)
    return found


def whence(section, bundle):
    """When a section ran and on what; a section of another bundle than the latest run's says so: its tables and what is chosen in
    them may be others by now."""
    of = section.get("bundle")
    if of and of == bundle:
        return f"Run {section['date']}, bundle {of}."
    return f"Run {section['date']}. **Stale**: of {f'bundle {of}' if of else 'a bundle that was not noted'}."


def markdown(facts):
    lines = [f"# {facts['device']}", "", f"{facts['date']}, driver {facts['driver']} (CUDA {facts['cuda']}), "
             + ", ".join(f"{k} {v}" for k, v in facts["versions"].items() if v)
             + (f", bundle {facts['bundle']}" if facts.get("bundle") else ""), ""]
    for name, section in facts["sections"].items():
        lines += [f"## {name}: {'passed' if section['passed'] else 'FAILED'} in {section['seconds']} s"
                  f"{' (' + section['error'] + ')' if 'error' in section else ''}", "",
                  whence(section, facts.get("bundle")), ""]
        if section["bars"]:
            lines += ["| bar | found | limit | |", "|---|---|---|---|"]
            for b in section["bars"]:
                found = f"{b['found']:.4g}" if isinstance(b["found"], float) else b["found"]
                limit = "" if b["limit"] is True else f"{'>=' if b['at_least'] else '<='} {b['limit']} {b['unit']}"
                lines.append(f"| {b['name']} | {found} | {limit} | {'ok' if b['holds'] else '**missed**'} |")
            lines.append("")
        lines += [f"- {k}: {v}" for k, v in section["facts"].items()]
        for table in section["tables"]:
            lines += ["", f"{table['title']}", "", "| " + " | ".join(table["head"]) + " |",
                      "|" + "---|" * len(table["head"])]
            lines += ["| " + " | ".join(map(str, row)) + " |" for row in table["rows"]]
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", help=f"which ones, of: {', '.join(SECTIONS)}")
    parser.add_argument("--out", default=os.environ.get("OUT") or str(HERE / "results"))
    parser.add_argument("--list", action="store_true", help="name the sections and what they need")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{n}: {g} GPU{'s' if g > 1 else ''}, at most {s} s" for n, (_, s, g) in SECTIONS.items()))
        return
    names, cuda, driver = devices()
    wanted = args.sections or list(SECTIONS)
    unknown = [s for s in wanted if s not in SECTIONS]
    if unknown:
        sys.exit(f"gpu_check: no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    if not names:
        print(f"gpu_check: no CUDA device on this machine, so {len(wanted)} sections cannot run", file=sys.stderr)
        sys.exit(3)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9]+", "_", names[0]).strip("_").lower()
    path = out / f"{stem}.json"
    before = [p for p in (path, HERE / "results" / path.name) if p.exists()]
    facts = json.loads(before[0].read_text()) if before else {"sections": {}}
    facts |= {"device": names[0], "driver": driver, "cuda": cuda, "versions": versions(),
              "bundle": bundle_id(), "date": datetime.date.today().isoformat()}
    skipped = [s for s in wanted if SECTIONS[s][2] > len(names)]
    passed = failed = 0
    with open(out / f"{stem}.log", "w") as log:
        for name in wanted:
            if name in skipped:
                continue
            section = run_section(name, out, log)
            section |= {"date": facts["date"], "gpus": len(names), "bundle": facts["bundle"]}
            facts["sections"][name] = section
            facts["sections"] = {n: facts["sections"][n] for n in SECTIONS if n in facts["sections"]}
            path.write_text(json.dumps(facts, indent=1) + "\n")
            (out / f"{stem}.md").write_text(markdown(facts) + "\n")
            passed, failed = passed + section["passed"], failed + (not section["passed"])
    for name in skipped:
        print(f"skipped {name} (needs {SECTIONS[name][2]} GPUs, there is {len(names)})")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
