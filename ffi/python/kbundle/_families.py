"""A wheel for each GPU family beside the base wheel: the build hook's key `families`.

    targets  = ["sm_80", "sm_90a", "sm_100f", "x86-64-v3"]
    families = { sm90a = ["sm_90a"], blackwell = ["sm_100f"] }

The base, NAME, keeps the wrappers and every target that no family takes. NAME-sm90a is data alone: a bundle of the same ops for its
targets. Both name each other in one version: NAME[sm90a] installs both, and NAME-sm90a without NAME does not go. Beside each bundle lies a
file, NAME.kb.parts, by which the base's finds the others; loader/parts/beside.h says how.
"""

import pathlib
import re

from kbundle import _wheel

SUFFIX = ".parts"  # of the file beside a bundle
FIRST_LINE = "kbundle parts 1"
MOST_DEPTH = 16
HOST = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
KEPT = ("Metadata-Version", "Version", "Author", "Author-email", "Maintainer", "Maintainer-email", "License", "License-Expression",
        "License-File", "Classifier", "Requires-Python", "Project-URL")


class Families:
    """Those of one project. refuse(why): raises; metadata: hatchling's, of the base."""

    def __init__(self, families, targets, metadata, refuse):
        self._families, self._metadata = families, metadata
        self._check_values(targets, refuse)
        taken = [target for wanted in families.values() for target in wanted]
        self.left = [target for target in targets if target not in taken]
        if not self.left:
            refuse("families take every target, and the base has none; leave it one, such as the host's")

    def __iter__(self):
        """(family, its targets)."""
        return iter(sorted(self._families.items()))

    def _check_values(self, targets, refuse):
        if not isinstance(self._families, dict) or not all(re.fullmatch("[a-z][a-z0-9]*", name) for name in self._families):
            refuse("families is %r; it must be a table of names in lower-case letters and digits, as { sm90a = [\"sm_90a\"] }" % (self._families,))
        if not targets:
            refuse("families is there, and targets is not; it must list every target of the library, of which families take some")
        seen = {}
        for name, wanted in self._families.items():
            if not isinstance(wanted, list) or not wanted or not all(isinstance(target, str) for target in wanted):
                refuse("families.%s is %r; it must be a list of targets" % (name, wanted))
            for target in wanted:
                if target not in targets:
                    refuse("families.%s has %r, which is none of targets: %s" % (name, target, ", ".join(targets)))
                if seen.setdefault(target, name) != name:
                    refuse("both families.%s and families.%s have %r; a target is in one wheel" % (seen[target], name, target))

    def package(self, family):
        return "%s-%s" % (self._metadata.core.raw_name, family)

    def offer(self):
        """Gives the base's metadata an extra for each family."""
        offered = self._metadata.core.optional_dependencies
        for family, _ in self:
            offered.setdefault(family, []).append("%s==%s" % (self.package(family), self._metadata.version))

    def text(self, path, refuse):
        """What lies beside the base's bundle. path: the bundle's in the wheel."""
        depth = path.count("/")
        if depth > MOST_DEPTH:
            refuse("families is there, and the bundle is %d folders deep in the wheel, at %s; it may be %d" % (depth, path, MOST_DEPTH))
        rows = [" ".join(["family", family, *_targets(wanted)]) for family, wanted in self]
        return self._lines("depth %d" % depth, *rows)

    def _lines(self, *more):
        core = self._metadata.core
        return "\n".join([FIRST_LINE, "package " + core.raw_name, "version " + self._metadata.version, *more, ""])

    def write(self, family, bundle, folder, about, root):
        """The wheel of a family. bundle: its file; about: METADATA of the base."""
        name = self.package(family)
        module = re.sub("[-_.]+", "_", name).lower()
        files = {"%s/%s" % (module, bundle.name): bundle.read_bytes(),
                 "%s/%s%s" % (module, bundle.name, SUFFIX): self._lines("part " + family).encode()}
        licenses = {path: (pathlib.Path(root) / path).read_bytes() for path in self._metadata.core.license_files}
        return _wheel.write(folder, module, self._metadata.version, "py3-none-any", files, self._about(family, about), licenses=licenses)

    def _about(self, family, about):
        fields = re.split(r"\n(?=\S)", about.split("\n\n")[0])  # a field's further lines are indented
        kept = [field for field in fields if field.split(":")[0] in KEPT]
        base = self._metadata.core.raw_name
        own = ["Name: %s" % self.package(family), "Summary: %s for %s" % (base, ", ".join(self._families[family])),
               "Requires-Dist: %s==%s" % (base, self._metadata.version)]
        return "\n".join([*kept[:1], *own, *kept[1:], "", ""])


def _targets(names):
    """As bundles call them: host is several."""
    return [target for name in names for target in (HOST if name == "host" else [name])]
