"""Which problems a model asks for, read off its lowering: no run, no device of the platform.

A line of the file that Problems.save writes is what `kbundle tune --problems`, `kbundle build --problems` and
`kbundle verify --problems` read:
{"attributes": {"scale": 0.125}, "op": "family.op", "operands": {"x": "bf16[4,2048]"}}
"""

import contextlib
import json
import math
import os
import tempfile

import jax

from kbundle import _spec
from kbundle._bundle import CUDA, HOST
from kbundle._errors import Error
from kbundle._open_bundles import find
from kbundle.jax._primitive import recorder

_PLATFORMS = {HOST: "cpu", CUDA: "cuda"}


class Problems(list):
    """Problems as dicts, in the order of the model's first call of each, none twice."""

    def save(self, path):
        """Writes them to a file, one JSON object a line, sorted; the file is replaced whole or not at all."""
        folder = os.path.dirname(os.path.abspath(path))
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".problems-", delete=False) as file:
            file.writelines(sorted(json.dumps(problem, sort_keys=True) + "\n" for problem in self))
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)


def record_problems(function, *operands, platform="cuda", **keywords):
    """Every problem that function(*operands, **keywords) asks a bundle for on a platform ("cuda" or "cpu").

    The function is traced and lowered for that platform, not run, so this works on a machine without a GPU, and
    shapes stand in for arrays (jax.ShapeDtypeStruct). Whatever JAX makes of the program counts: gradients,
    vmap's batches, shard_map's shards. Calls over zero elements are no problems. Arguments are traced: those
    that must not be belong into a functools.partial."""
    known = {name: kind for kind, name in _PLATFORMS.items()}
    if platform not in known:
        raise Error("INVALID_ARGUMENT", "recording problems for platform %r: it is none of %s"
                    % (platform, ", ".join(sorted(known))))
    problems = Problems()
    # A function of its own, so that no cache of an earlier lowering answers.
    traced = jax.jit(lambda *operands, **keywords: function(*operands, **keywords))
    with _recording(known[platform], problems):
        traced.trace(*operands, **keywords).lower(lowering_platforms=(platform,))
    return problems


def note(kind, bundle, op, operands, attributes):
    """A call is being lowered. operands: (dtype name, shape) or None, in the op's order; attributes in the normal
    form of _spec. Does nothing unless this thread is recording for that platform."""
    wanted = getattr(recorder, "wanted", None)
    if wanted is None or wanted[0] != kind:
        return
    problem = _problem(find(bundle, op).op(op), operands, attributes)
    if problem not in wanted[1]:
        wanted[1].append(problem)


@contextlib.contextmanager
def _recording(kind, problems):
    before = getattr(recorder, "wanted", None)
    recorder.wanted = (kind, problems)
    try:
        yield
    finally:
        recorder.wanted = before


def _problem(op, operands, attributes):
    described = {operand.name: "%s[%s]" % (spec[0], ",".join(map(str, spec[1])))
                 for operand, spec in zip(op.operands, operands) if spec is not None}
    values = {attribute.name: attribute.default for attribute in op.attributes if not attribute.required}
    for name, kind, value in attributes:
        values[name] = _plain(op.name, name, _spec.plain_value(kind, value))
    return {"op": op.name, "operands": described, "attributes": values}


def _plain(op, name, value):
    values = value if isinstance(value, tuple) else (value,)
    if any(isinstance(element, float) and not math.isfinite(element) for element in values):
        raise Error("UNIMPLEMENTED", "recording a problem of op %r: attribute %r is %r, which a line of JSON "
                    "cannot say; record with a finite value" % (op, name, value))
    return list(value) if isinstance(value, tuple) else value
