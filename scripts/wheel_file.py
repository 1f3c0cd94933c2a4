"""One wheel: the same files give the same bytes, on any day and in any folder.

A wheel is a zip with its own list of digests (RECORD); names are sorted, times are the first that a zip can say, modes are 0644, and 0755 of
what is run.
"""

import base64
import hashlib
import io
import pathlib
import shutil
import subprocess
import zipfile

COMPONENTS = ("runtime", "development", "command")  # of cmake/install.cmake, what the wheel kbundle holds
PROGRAMS = ("bin/kbundle", "libexec/kbundle/kb_planner")
FIRST_DAY = (1980, 1, 1, 0, 0, 0)


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


def record(files, name):
    """RECORD of the other files: path, SHA-256, size."""
    rows = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    return "".join(rows) + f"{name},,\n"


def write(folder, name, version, tag, files, about, entry_points="", licenses=(), programs=()):
    """Writes the wheel into the folder and returns its path. files: {path inside: bytes}; about: METADATA; licenses: {name: bytes}; programs:
    the paths of files that are run. The module's own code is pure or loaded by ctypes, so tag begins with py3-none."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    whole = dict(files)
    whole[f"{info}/METADATA"] = about.encode()
    whole[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: kbundle scripts/wheel\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    if entry_points:
        whole[f"{info}/entry_points.txt"] = entry_points.encode()
    for license_name, text in dict(licenses).items():
        whole[f"{info}/licenses/{license_name}"] = text
    whole[f"{info}/RECORD"] = record(whole, f"{info}/RECORD").encode()

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(whole, key=lambda path: (path.startswith(info), path)):  # as the format recommends: about it comes last
            entry = zipfile.ZipInfo(path, FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path in programs else 0o100644) << 16
            entry.create_system = 3
            archive.writestr(entry, whole[path])
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{tag}.whl"
    draft = path.with_suffix(".new")
    draft.write_bytes(packed.getvalue())
    return draft.replace(path)
