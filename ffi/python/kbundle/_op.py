"""Ops: what a bundle says about each."""

from types import SimpleNamespace

_LISTS = ("types", "operands", "results", "attributes", "tolerances")


class Op:
    """What an op computes and how it is called: name, summary, interface (hash), vmap (rule), and lists of
    operands, results, attributes, types and tolerances, each with named fields (kb_bundle_describe in
    kbundle_c.h names them). Belongs to a bundle; immutable; safe from any thread."""

    def __init__(self, bundle, description):
        self._bundle = bundle
        for key, value in description.items():
            if key in _LISTS:
                value = [SimpleNamespace(**entry) for entry in value]
            setattr(self, key, value)

    @property
    def variants(self):
        """The ways this op can be computed, all targets, in manifest order."""
        return self._entries("variants")

    @property
    def problems(self):
        """The problems that the manifest lists, and those of `kbundle build --problems`."""
        return self._entries("problems")

    def _entries(self, key):  # many, and rarely wanted: not read when the bundle is opened
        [described] = self._bundle._describe(self.name, whole=True)["ops"]
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
