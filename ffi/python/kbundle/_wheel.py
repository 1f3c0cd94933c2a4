"""One wheel: the same files give the same bytes, on any day and in any folder.

A wheel is a zip with its own list of digests (RECORD); names are sorted, times are the first that a zip can say, modes are 0644, and 0755 of
what is run. For the build hook, and for the scripts that pack kbundle itself; imports nothing of kbundle.
"""

import base64
import hashlib
import io
import pathlib
import zipfile

FIRST_DAY = (1980, 1, 1, 0, 0, 0)


def record(files, name):
    """RECORD of the other files: path, SHA-256, size."""
    rows = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append("%s,sha256=%s,%d\n" % (path, digest, len(data)))
    return "".join(rows) + "%s,,\n" % name


def write(folder, name, version, tag, files, about, entry_points="", licenses=(), programs=()):
    """Writes the wheel into the folder and returns its path. files: {path inside: bytes}; about: METADATA; licenses: {name: bytes}; programs:
    the paths of files that are run. The module's own code is pure or loaded by ctypes, so tag begins with py3-none."""
    stem = "%s-%s" % (name.replace("-", "_"), version)
    info = "%s.dist-info" % stem
    pure = "true" if tag.endswith("-any") else "false"
    whole = dict(files)
    whole[info + "/METADATA"] = about.encode()
    whole[info + "/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: kbundle\nRoot-Is-Purelib: %s\nTag: %s\n" % (pure, tag)).encode()
    if entry_points:
        whole[info + "/entry_points.txt"] = entry_points.encode()
    for license_name, text in dict(licenses).items():
        whole["%s/licenses/%s" % (info, license_name)] = text
    whole[info + "/RECORD"] = record(whole, info + "/RECORD").encode()

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
    path = folder / ("%s-%s.whl" % (stem, tag))
    draft = path.with_suffix(".new")
    draft.write_bytes(packed.getvalue())
    return draft.replace(path)
