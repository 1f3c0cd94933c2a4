"""Ops: what a bundle says about each.

A bundle has many ops, a program uses few: so an op is described, and its part of the file checked, when somebody first asks for more
than its name.
"""

from types import SimpleNamespace

_LISTS = ("types", "operands", "results", "attributes", "tolerances")


class Op:
    """What an op computes and how it is called: name, summary, interface (hash), vmap (rule), and lists of
    operands, results, attributes, types and tolerances, each with named fields (kb_bundle_describe in
    kbundle_c.h names them). Belongs to a bundle; immutable; safe from any thread. All but the name is read when it is first
    wanted, and DATA_LOSS where the bundle is damaged there."""

    def __init__(self, bundle, name):
        self._bundle = bundle
        self.name = name

    def __getattr__(self, key):
        """Of what is not there yet. Two threads may both read it, and write the same."""
        if key.startswith("_") or "interface" in self.__dict__:
            raise AttributeError("op %r has no %r" % (self.__dict__.get("name"), key))
        [description] = self._bundle._describe(self.name, whole=0)["ops"]
        for name, value in description.items():
            if name in _LISTS:
                value = [SimpleNamespace(**entry) for entry in value]
            if name != "interface":  # last: with it, all is there
                setattr(self, name, value)
        self.interface = description["interface"]
        return getattr(self, key)

    @property
    def variants(self):
        """The ways this op can be computed, all targets, in manifest order."""
        return self._entries("variants")

    @property
    def problems(self):
        """The problems that the manifest lists, and those of `kbundle build --problems`."""
        return self._entries("problems")

    def _entries(self, key):  # many, and rarely wanted: not read when the bundle is opened
        [described] = self._bundle._describe(self.name, whole=1)["ops"]
        return [SimpleNamespace(**entry) for entry in described[key]]

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return (_of, (self._bundle, self.name))

    def __repr__(self):
        operands = ", ".join(operand.name for operand in self.operands)
        attributes = "".join(", %s=" % attribute.name for attribute in self.attributes)
        return "<kbundle.Op %s(%s%s)>" % (self.name, operands, attributes)


def _of(bundle, name):
    return bundle.op(name)
