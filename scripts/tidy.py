"""Runs clang-tidy over the sources of build/release, skipping files that passed unchanged.

A file passed unchanged when it, its compile command, .clang-tidy and every header of the tree are
what they were: coarser than tracking includes, and never wrong.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ("schemas", "loader", "builder", "ffi")
STAMPS = ROOT / "build/tidy"


def digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else str(part).encode())
        h.update(b"\0")
    return h.hexdigest()


def run(path, stamp):
    result = subprocess.run(
        ["clang-tidy", "--quiet", "-p", str(ROOT / "build/release"), "--extra-arg=-Wno-everything",
         str(path)], capture_output=True, text=True)
    if result.returncode == 0:
        stamp.write_text("")
        return ""
    return result.stdout + result.stderr


def main():
    commands = json.loads((ROOT / "build/release/compile_commands.json").read_text())
    headers = sorted(p for room in ROOMS + ("tests",) for p in (ROOT / room).rglob("*.h"))
    common = digest((ROOT / ".clang-tidy").read_bytes(), *(p.read_bytes() for p in headers))
    STAMPS.mkdir(parents=True, exist_ok=True)
    work = []
    for entry in commands:
        path = pathlib.Path(entry["file"])
        if not any(path.is_relative_to(ROOT / room) for room in ROOMS):
            continue
        stamp = STAMPS / digest(common, path, path.read_bytes(), entry["command"])
        if not stamp.exists():
            work.append((path, stamp))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for output in pool.map(lambda item: run(*item), work):
            if output:
                failed += 1
                print(output, flush=True)
    print(f"clang-tidy: {len(work)} files looked at, {failed} with findings")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
