"""Runs clang-tidy over the sources of build/release, skipping files that passed unchanged.

A file passed unchanged when its compile command, .clang-tidy, clang-tidy itself and every file that its compilation read are
what they were. What was read is what the compiler said, in ninja's log: so build/release must have been built. What passed is
remembered in kbundle's cache, under names in which the checkout's folder does not matter, until nothing has asked for it for a month.
Sources that are compiled together (KB_TOGETHER in CMakeLists.txt) are analysed together, for the same reason.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
ROOMS = ("schemas", "loader", "builder", "ffi")
MONTH_SECONDS = 30 * 24 * 3600


def stamps():
    """Where passed files are remembered: $KBUNDLE_CACHE, else the user's cache folder, as of the command."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("KBUNDLE_CACHE") or pathlib.Path(cache) / "kbundle") / "tidy"


def digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else str(part).encode())
        h.update(b"\0")
    return h.hexdigest()


@functools.cache
def content(path):
    return digest(pathlib.Path(path).read_bytes())


def judge():
    """All that a verdict depends on beside the files: clang-tidy, its rules, and how it is called here."""
    version = subprocess.run(["clang-tidy-14", "--version"], check=True, capture_output=True).stdout
    return digest((ROOT / ".clang-tidy").read_bytes(), version, pathlib.Path(__file__).read_bytes())


def files_read():
    """Of each object of the build, the files that its compilation read, as `ninja -t deps` prints them."""
    text = subprocess.run(["ninja", "-C", str(BUILD), "-t", "deps"], check=True, capture_output=True, text=True).stdout
    read, current = {}, None
    for line in text.splitlines():
        if line.startswith("    "):
            current.append(line.strip())
        elif ": #deps" in line:
            current = read[line.split(": #deps")[0]] = []
    return read


def ours(path):
    """Whether a source of a compile command is one of our rooms, or is made of such."""
    return any(pathlib.Path(path).is_relative_to(folder) for room in ROOMS for folder in (ROOT / room, BUILD / room / "together"))


def passed(stamp):
    """Whether there is such a stamp; it is then as good as new."""
    if stamp.exists():
        stamp.touch()
        return True
    return False


def prune(folder):
    for stamp in folder.iterdir():
        if stamp.stat().st_mtime < time.time() - MONTH_SECONDS:
            stamp.unlink(missing_ok=True)


def key(entry, read, common):
    """None where the build has not compiled it: then nothing is known of what it reads."""
    files = read.get(entry["command"].partition(" -o ")[2].partition(" ")[0])
    if not files:
        return None
    here = os.path.join(str(ROOT), "")
    absolute = sorted({os.path.normpath(BUILD / name) for name in files} | {entry["file"]})
    named = [part for path in absolute for part in (path.removeprefix(here), content(path))]
    return digest(common, entry["command"].replace(here, ""), *named)


def run(path, stamp):
    # clang 14 takes the consteval functions of GCC 13's <chrono>, which Ubuntu 24.04 has, for errors.
    result = subprocess.run(["clang-tidy-14", "--quiet", "-p", str(BUILD), "--extra-arg=-Wno-everything",
                             "--extra-arg=-Dconsteval=constexpr", path],
                            capture_output=True, text=True)
    if result.returncode:
        return result.stdout + result.stderr
    if stamp:
        stamp.write_text("")
    return ""


def main():
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    common, read, folder = judge(), files_read(), stamps()
    folder.mkdir(parents=True, exist_ok=True)
    work = []
    for entry in commands:
        if not ours(entry["file"]):
            continue
        name = key(entry, read, common)
        if not name or not passed(folder / name):
            work.append((entry["file"], folder / name if name else None))
    prune(folder)
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
