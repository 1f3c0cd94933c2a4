"""A hook of hatchling that builds a library's bundle into its wheel: what `kbundle new` writes uses it.

    [build-system]
    requires      = ["hatchling", "kbundle[build]"]
    build-backend = "hatchling.build"

    [tool.hatch.build.targets.wheel.hooks.kbundle]
    manifests = ["kernels"]               # what `kbundle build` is given
    bundle    = "src/mylib/mylib.kb"      # where it is made, inside a package of the wheel
    lean      = true                      # without what no problem's choice can come to [false]
    targets   = ["sm_90a", "x86-64-v3"]   # [those of the manifests]

The command is $KBUNDLE_COMMAND, the one installed with this Python, or the first on PATH. The same sources give the same wheel: the
bundle is reproducible, and hatchling sorts files and fixes times. With `pip install -e .` the bundle is built in place.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

KEYS = ("manifests", "bundle", "lean", "targets")
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
        self._build(bundle)
        build_data["artifacts"].append("/" + bundle)
        size = (pathlib.Path(self.root) / bundle).stat().st_size
        self.app.display_info("kbundle: %s, %s bytes" % (bundle, format(size, ",")))
        if size > INDEX_LIMIT:
            self.app.display_warning("kbundle: %s has %s bytes, and PyPI takes files of at most %s unless asked: fewer targets, "
                                     "lean = true, or a wheel for each GPU family" % (bundle, format(size, ","), format(INDEX_LIMIT, ",")))

    def _build(self, bundle):
        words = [command(), "build", *self._texts("manifests", ["kernels"]), "-o", bundle]
        for target in self._texts("targets", []):
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
