"""What is inside the wheels that scripts/wheel makes; kbundle._wheel writes them."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "ffi/python"))
from kbundle._wheel import write  # noqa: E402, F401

COMPONENTS = ("runtime", "development", "command")  # of cmake/install.cmake, what the wheel kbundle holds
PROGRAMS = ("bin/kbundle", "libexec/kbundle/kb_planner")


def metadata(name, version, summary, requires=(), extras=(), description=""):
    """METADATA. requires: requirements, those of an extra with their marker; extras: their names."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {summary}", "License: Apache-2.0",
             "Requires-Python: >=3.11", "Classifier: Operating System :: POSIX :: Linux",
             *(f"Requires-Dist: {one}" for one in requires), *(f"Provides-Extra: {one}" for one in extras),
             "Description-Content-Type: text/markdown", "", description]
    return "\n".join(lines)


def in_prefix(name, version, path):
    """Where a wheel has a file that pip puts below the environment's own folder: bin/ by a name of its own, the rest by its path."""
    kind = "scripts" if path.startswith("bin/") else "data"
    return f"{name.replace('-', '_')}-{version}.data/{kind}/{path.removeprefix('bin/')}"


def installed(build, prefix):
    """{path: bytes} of what the wheel kbundle takes of a build, installed into the prefix, which is made anew."""
    shutil.rmtree(prefix, ignore_errors=True)
    for component in COMPONENTS:
        subprocess.run(["cmake", "--install", str(build), "--prefix", str(prefix), "--component", component], check=True, stdout=subprocess.DEVNULL)
    files = {path.relative_to(prefix).as_posix(): path.read_bytes() for path in sorted(pathlib.Path(prefix).rglob("*"))
             if path.is_file() and not path.is_symlink()}  # a wheel has no links
    return {path: data for path, data in files.items() if not path.startswith("share/doc/")}


def of_command(package, version, files):
    """What is inside the wheel kbundle. The library goes beside the package too, the rest of the files where pip's prefix has it."""
    inside = {path.relative_to(package).as_posix(): path.read_bytes() for path in sorted(package.glob("kbundle/**/*.py"))}
    inside["kbundle/libkbundle.so"] = files["lib/libkbundle.so.1"]
    return inside | {in_prefix("kbundle", version, path): data for path, data in files.items()}


def programs(version):
    """Of these the ones that are run."""
    return {in_prefix("kbundle", version, path) for path in PROGRAMS}
