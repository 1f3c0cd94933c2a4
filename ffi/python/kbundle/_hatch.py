"""A hook of hatchling that builds a library's bundle into its wheel: what `kbundle new` writes uses it.

    [build-system]
    requires      = ["hatchling", "kbundle[build]"]
    build-backend = "hatchling.build"

    [tool.hatch.build.targets.wheel.hooks.kbundle]
    manifests = ["kernels"]               # what `kbundle build` is given
    bundle    = "src/mylib/mylib.kb"      # where it is made, inside a package of the wheel
    lean      = true                      # without what no problem's choice can come to [false]
    targets   = ["sm_90a", "x86-64-v3"]   # [those of the manifests]
    families  = { sm90a = ["sm_90a"] }    # wheels of their own for these targets, NAME-sm90a, beside the base [none]

The command is $KBUNDLE_COMMAND, the one installed with this Python, or the first on PATH. The same sources give the same wheel: the
bundle is reproducible, and hatchling sorts files and fixes times. With `pip install -e .` the bundle is built in place.

`families` divides a large library (docs/wheel.md): `python -m build --wheel` writes all wheels into one folder. pip keeps one wheel of
a build, so what it builds itself, `pip install .` or `pip wheel .`, is one wheel with every target.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from kbundle._families import SUFFIX, Families

KEYS = ("manifests", "bundle", "lean", "targets", "families")
INDEX_LIMIT = 100 * 10**6  # bytes: what PyPI takes of one file unless asked


def command():
    """Path of the command; an error that says where it was looked for."""
    beside = pathlib.Path(sys.executable).with_name("kbundle")
    found = os.environ.get("KBUNDLE_COMMAND") or (str(beside) if beside.exists() else shutil.which("kbundle"))
    if not found or not shutil.which(found):
        raise RuntimeError("building a bundle needs the command kbundle: %s; pip install \"kbundle[build]\", or name one in "
                           "KBUNDLE_COMMAND" % ("KBUNDLE_COMMAND names %s, which cannot be run" % found if found else
                                                "it is neither beside %s nor on PATH" % sys.executable))
    return found


class BundleHook(BuildHookInterface):
    PLUGIN_NAME = "kbundle"

    def initialize(self, version, build_data):
        """Builds the bundle in place and lets the wheel have it, although git ignores it."""
        bundle = self._text("bundle")
        if bundle is None:
            self._refuse("bundle is missing; it says where in the wheel's package the bundle is made, as \"src/mylib/mylib.kb\"")
        targets = self._texts("targets", [])
        self._families = self._divide(targets) if version == "standard" else None
        self._build(bundle, bundle, self._families.left if self._families else targets)
        build_data["artifacts"].append("/" + bundle)
        if self._families:
            self._build_families(bundle, build_data)

    def finalize(self, version, build_data, artifact_path):
        """Packs what the base does not hold, and tells sizes."""
        made = [pathlib.Path(artifact_path)]
        if self._families:
            about = self._about_base(artifact_path)
            for family, _ in self._families:
                part = pathlib.Path(self._room.name) / family / pathlib.Path(self.config["bundle"]).name
                made.append(self._families.write(family, part, made[0].parent, about, self.root))
        for wheel in made if version == "standard" else ():
            self._tell_size(wheel)

    def _divide(self, targets):
        """Families as pyproject.toml has them, checked; None where it has none, or where pip would throw their wheels away."""
        families = self.config.get("families")
        divided = Families(families, targets, self.metadata, self._refuse) if families is not None else None
        return None if "PIP_BUILD_TRACKER" in os.environ else divided

    def _build_families(self, bundle, build_data):
        """Each into a room of its own, before anything is packed: a kernel that does not compile leaves no wheel."""
        self._room = tempfile.TemporaryDirectory(prefix="kbundle-")
        room = pathlib.Path(self._room.name)
        for family, targets in self._families:
            (room / family).mkdir()
            self._build(bundle, room / family / pathlib.Path(bundle).name, targets)
        path = self.build_config.get_distribution_path(bundle)
        (room / "parts").write_text(self._families.text(path, self._refuse))
        build_data["force_include"][str(room / "parts")] = path + SUFFIX
        self._families.offer()

    def _about_base(self, wheel):
        with zipfile.ZipFile(wheel) as file:
            about, = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
            return file.read(about).decode()

    def _tell_size(self, wheel):
        size = wheel.stat().st_size
        self.app.display_info("kbundle: %s, %s bytes of the %s that PyPI takes" % (wheel.name, format(size, ","), format(INDEX_LIMIT, ",")))
        if size > INDEX_LIMIT:
            self.app.display_warning("kbundle: WARNING: %s is larger than PyPI takes unless asked: fewer targets, lean = true, or families, "
                                     "which put GPUs into wheels of their own" % wheel.name)

    def _build(self, bundle, output, targets):
        """Under the name of the base's bundle, whatever the file is called."""
        words = [command(), "build", *self._texts("manifests", ["kernels"]), "-o", str(output), "--name", pathlib.Path(bundle).stem]
        for target in targets:
            words += ["--target", target]
        lean = self.config.get("lean", False)
        if not isinstance(lean, bool):
            self._refuse("lean is %r; it must be true or false" % (lean,))
        done = subprocess.run(words + ["--lean"] * lean, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise RuntimeError("`%s` in %s ended with %d:\n%s" % (" ".join(words), self.root, done.returncode, done.stdout))

    def _text(self, key):
        unknown = sorted(set(self.config) - set(KEYS) - {"dependencies", "require-runtime-dependencies", "require-runtime-features",
                                                         "enable-by-default"})
        if unknown:
            self._refuse("it has no key %s; there are %s" % (unknown[0], ", ".join(KEYS)))
        value = self.config.get(key)
        if value is not None and (not isinstance(value, str) or not value or pathlib.PurePath(value).is_absolute() or ".." in value.split("/")):
            self._refuse("%s is %r; it must be a path below the project's folder" % (key, value))
        return value

    def _texts(self, key, default):
        value = self.config.get(key, default)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._refuse("%s is %r; it must be a list of strings" % (key, value))
        return value

    def _refuse(self, why):
        raise ValueError("pyproject.toml, [tool.hatch.build.targets.wheel.hooks.kbundle]: %s" % why)


@hookimpl
def hatch_register_build_hook():
    return BundleHook
