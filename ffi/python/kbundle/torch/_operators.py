"""Ops as torch's own operators, made of what a bundle says of them: torch.ops.kbundle.<family>_<op>, whose overloads are named after the
op's interface ("i" and its hash), so that a program which was compiled or exported finds an op with the same contract, or none.

Each has a kernel for CPU and CUDA, a rule for fake tensors (kb_infer), a loop as its rule for torch.func.vmap and, where its family has one,
a derivative. Its results are all tensors; one that a call does not have is of shape ABSENT, and `call` gives None for it.
"""

import contextlib
import functools
import keyword
import threading

import torch

from kbundle import _open_bundles
from kbundle._bundle import CUDA, HOST, Bundle
from kbundle._discovery import default_bundle
from kbundle._errors import Error
from kbundle.torch import _derivatives, _direct, _eager, _functional, _launch, _shortcut, _symbolic
from kbundle.torch._dtypes import NAMES, TORCH

NAMESPACE = "kbundle"
_TYPES = {"float": "float", "int": "int", "bool": "bool", "enum": "str", "dtype": "str", "int[]": "int[]", "float[]": "float[]"}

_WORDS = frozenset(keyword.kwlist) | {"self", "bundle", "out", "Tensor"}

# A guard that torch.library itself uses; without it calls are slower, and no less right.
_below_autograd = getattr(torch._C, "_AutoDispatchBelowAutograd", contextlib.nullcontext)

_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_lock = threading.Lock()
_operators = {}  # by name and interface of the op
_calls = (None, {})  # what _bound said, since the last change of what is open


def call(bundle, op, *tensors, **attributes):
    """Calls an op of a bundle on tensors, on the current stream of their device; a tuple of results, or the only one. bundle: None is the
    first that has the op (kbundle.bundles). Optional operands may be None and are left out at the end; a result that this call does not have
    is None. Tensors that are not contiguous are copied. Gradients flow where the op's family says how."""
    if bundle is not None and not isinstance(bundle, Bundle):
        raise Error("INVALID_ARGUMENT", "calling op %r: %r is no bundle; pass what kbundle.open returned, or None" % (op, bundle))
    results = _called(None if bundle is None else bundle.name, op, *tensors, **attributes)
    return results[0] if len(results) == 1 else results if type(results) is tuple else tuple(results)


def _called(bundle, op, /, *tensors, **attributes):
    """Results, absent ones None."""
    if torch.compiler.is_compiling():
        return _long(bundle, op, tensors, attributes)
    return _known_call(bundle, op, *tensors, **attributes)


def _call(bundle, op, /, *tensors, **attributes):
    if not _eager.enabled:
        return _long(bundle, op, tensors, attributes)
    made = _eager.attempt(bundle, op, tensors, attributes)
    if type(made) is tuple:
        return made
    if type(made) is _eager.Unknown:
        unknown, made = made, _long(bundle, op, tensors, attributes)
        _know(unknown, bundle, op, tensors, attributes)
        return made
    return _long(bundle, op, tensors, attributes) if made is None else made


_known_call = _shortcut.known_calls(_call) if _shortcut.enabled else _call


def _know(unknown, bundle, op, tensors, attributes):
    """Of a call that was made the long way, for those to come."""
    decided, serving = _eager.environment(), _bundle(bundle, op)
    if bundle is not None or _open_bundles.used() is serving:
        decided = None
    given = [index for index, tensor in enumerate(tensors) if tensor is not None]
    _eager.know(unknown, _eager.Site(_kernel(serving.op(op)), serving.name, given, attributes,
                                     lambda tensors: _long(serving.name, op, tensors, attributes), decided))


def _long(bundle, op, tensors, attributes):
    """By the operator that the op is, which says what is wrong with a call."""
    try:
        made = _overload(bundle, op, tensors, attributes)
    except RuntimeError as error:
        if torch.compiler.is_compiling():
            raise
        original = _direct.original(error)
        if original is error:
            raise
        raise original from None
    return [None if is_absent(result) else result for result in (made if isinstance(made, (tuple, list)) else (made,))]


def _overload(bundle, op, tensors, attributes):
    spelled = {}
    for name, value in attributes.items():
        if isinstance(value, torch.Tensor):
            raise Error("INVALID_ARGUMENT", "calling op %r: attribute %r is a tensor, but plans are made for known values; give a Python "
                        "value (.item())" % (op, name))
        spelled[_spelled(name)] = NAMES[value] if isinstance(value, torch.dtype) and value in NAMES else value
    _launch.check_plain(op, tensors)
    if all(tensor is None for tensor in tensors):
        raise Error("INVALID_ARGUMENT", "calling op %r: no operand is a tensor, so no device is named; give at least one" % op)
    if torch.compiler.is_compiling():
        bundle, packet, interface, absent = [_constant(bundle, op, len(tensors), tuple(attributes), index) for index in range(4)]
        overload = getattr(getattr(torch.ops.kbundle, packet), interface)
    else:
        bundle, overload, absent = _bound(bundle, op, len(tensors), tuple(attributes))
        _functional.refuse_tangents(op, tensors)
        if _functional.differentiated():
            return _functional.call(_functional.Call(_kernel(_bundle(bundle, op).op(op)), dict(spelled, bundle=bundle)), tensors)
        if not (torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)):
            with _below_autograd():  # torch's own rule for gradients is in Python, and costs half of what the call does
                return overload(*tensors, *([None] * absent), bundle=bundle, **spelled)
    try:
        return overload(*tensors, *([None] * absent), bundle=bundle, **spelled)
    except RuntimeError as error:
        if "functorch transforms" not in str(error):
            raise
        raise Error("UNIMPLEMENTED", "calling op %r under torch.func.grad, vjp or jacrev in a compiled function: torch has no such rule for "
                    "operators that packages bring along; compile inside of it, or use torch.autograd.grad" % op) from None


def is_absent(result):
    return result.dim() == len(_launch.ABSENT)


def _bundle(name, op):
    """The bundle that is open under a name and has the op; of None the one that serves it."""
    if name is None:
        return default_bundle(op)
    for bundle in _open_bundles.every():
        if bundle.name == name and bundle.has(op):
            return bundle
    return _open_bundles.find(name)


@torch.compiler.assume_constant_result
def _constant(bundle, op, given, attributes, index):
    """What torch.compile asks once, while it traces a call; it is part of the program: the bundle's name, both names of the operator, and how
    many operands are left out at the end."""
    name, overload, absent = _bound(bundle, op, given, attributes)
    return (name, *overload.name().removeprefix(NAMESPACE + "::").split("."), absent)[index]


def _bound(bundle, op, given, attributes):
    """(name of the bundle, operator, operands left out) of a call with so many operands and attributes of these names. Kept until another
    bundle is opened, closed or used, where that alone decides."""
    global _calls
    of, known = _calls
    if of != _open_bundles.changes():
        known = {}
        _calls = _open_bundles.changes(), known
    key = bundle, op, given, attributes
    found = known.get(key)
    if found is None:
        serving = _bundle(bundle, op)
        found = serving.name, _checked(serving.op(op), given, attributes), len(serving.op(op).operands) - given
        if bundle is not None or _open_bundles.used() is serving:
            known[key] = found
    return found


def _checked(description, given, attributes):
    if given > len(description.operands):
        raise Error("INVALID_ARGUMENT", "calling op %r: %d operands are given; it has %d: %s"
                    % (description.name, given, len(description.operands), ", ".join(operand.name for operand in description.operands)))
    names = [attribute.name for attribute in description.attributes]
    for name in attributes:
        if name not in names:
            raise Error("INVALID_ARGUMENT", "calling op %r: it has no attribute %r; there are %s"
                        % (description.name, name, ", ".join(names) or "none"))
    return _kernel(description).overload


def _kernel(description):
    """The _Kernel of the op's operator, which is made where there is none yet."""
    key = description.name, description.interface
    made = _operators.get(key)
    if made is None:
        with _lock:
            made = _operators.get(key)
            if made is None:
                made = _operators[key] = _define(description)
    return made


def register(bundle):
    """Makes all ops of an open bundle operators of torch: what a process does that loads a program which another one exported."""
    for op in bundle.ops:
        _kernel(op)


# ---- one operator ----

def _spelled(name):
    """As a name in a schema, which has some words of its own."""
    return name + "_" if name in _WORDS else name


def _default(attribute):
    if attribute.default is None:
        return ""
    value = attribute.default
    if attribute.type in ("enum", "dtype"):
        return '="%s"' % value
    if attribute.type in ("int[]", "float[]"):
        return "=[%s]" % ", ".join(repr(float(one) if attribute.type == "float[]" else one) for one in value)
    return "=%r" % (float(value) if attribute.type == "float" else value)


def schema(description):
    """The operator's name and its schema."""
    name = "%s.i%s" % (description.name.replace(".", "_"), description.interface)
    required = max([index + 1 for index, operand in enumerate(description.operands) if not operand.optional], default=0)
    operands = ["Tensor%s %s%s" % ("?" if operand.optional else "", _spelled(operand.name), "=None" if index >= required else "")
                for index, operand in enumerate(description.operands)]
    attributes = ["%s %s%s" % (_TYPES[one.type], _spelled(one.name), _default(one)) for one in description.attributes]
    results = ", ".join(["Tensor"] * len(description.results))
    return name, "%s(%s) -> %s" % (name, ", ".join([*operands, "*", *attributes, 'str bundle=""']),
                                   "(%s)" % results if len(description.results) > 1 else results)


def _define(description):
    name, text = schema(description)
    try:
        _library.define(text)
    except RuntimeError as error:
        raise Error("INTERNAL", "making op %r an operator of torch: %s" % (description.name, error)) from None
    names = {attribute.name: _spelled(attribute.name) for attribute in description.attributes}
    kernel = _Kernel(description, names)
    base, overload = name.split(".")
    kernel.overload = getattr(getattr(torch.ops.kbundle, base), overload)
    kernel.rules = _direct.implement(kernel, description, name, text)
    if kernel.rules is None:
        kernel.rules = kernel.overload
        for key in ("CPU", "CUDA"):
            _library.impl(name, kernel, key)
    else:
        _direct.show(_library, name, kernel.overload, kernel.rules)
        _give_rules(_direct.RULES, _direct.rules_library(), name, description, kernel)
    _give_rules(NAMESPACE, _library, name, description, kernel)
    return kernel


def _give_rules(space, library, name, description, kernel):
    qualified = "%s::%s" % (space, name)
    torch.library.register_fake(qualified, kernel.fake, lib=library)
    torch.library.register_autograd(qualified, kernel.backward, setup_context=kernel.setup_context, lib=library)
    torch.library.register_vmap(qualified, functools.partial(_vmap, description.vmap, description.name, kernel), lib=library)


class _Kernel:
    """What torch calls for one operator. Python's arguments are positional operands, without those at the end that are None, and by name
    attributes that are not at their defaults."""

    def __init__(self, description, names):
        self.op, self._description = description.name, description
        self.operand_count, self.result_count = len(description.operands), len(description.results)
        self.types = {attribute.name: attribute.type for attribute in description.attributes}
        self._names = {spelled: name for name, spelled in names.items()}
        self._backward = None
        self.overload = self.rules = None  # the operator, and the one that differentiates calls (_direct)

    def __call__(self, *tensors, bundle="", **attributes):
        results = _launch.run(self.op, bundle, self.all(tensors), self.plain(attributes))
        return results[0] if self.result_count == 1 else tuple(results)

    def fake(self, *tensors, bundle="", **attributes):
        _functional.refuse_tangents(self.op, None)  # of a program that is compiled: a call was asked before
        device = _launch.device_of(self.op, tensors, {*_launch.KINDS, "meta"})
        tensors, attributes = self.all(tensors), self.plain(attributes)
        shapes = self._symbolic(bundle, tensors, attributes, device.type)
        if shapes is None:
            inferred = self._infer(bundle, [None if tensor is None else _Shape(tensor) for tensor in tensors], attributes, device.type)
            shapes = [found["dims"] for found in inferred["results"]]
        else:
            inferred, shapes = shapes
        results = [torch.empty(dims, dtype=TORCH[found["dtype"]], device=device) if found["present"]
                   else torch.empty(_launch.ABSENT, dtype=torch.uint8, device=device)
                   for found, dims in zip(inferred["results"], shapes, strict=True)]
        return results[0] if self.result_count == 1 else tuple(results)

    def _symbolic(self, bundle, tensors, attributes, kind):
        """(what kb_infer says of an example of the sizes, shapes of the results in the symbols), or None where nothing is a symbol, or the
        shapes cannot be said in them."""
        if not any(isinstance(size, torch.SymInt) for tensor in tensors if tensor is not None for size in tensor.shape):
            return None
        try:
            known = _symbolic.bind(self._description, [None if tensor is None else tensor.shape for tensor in tensors], dict(attributes))
            example = [None if tensor is None else _Shape(tensor, _hint) for tensor in tensors]
            inferred = self._infer(bundle, example, attributes, kind)
            shapes = [_symbolic.dims(result.shape, known) if found["present"] else [] for result, found in
                      zip(self._description.results, inferred["results"])]
            right = all(not found["present"] or [_hint(dim) for dim in dims] == found["dims"]
                        for found, dims in zip(inferred["results"], shapes))
        except Exception as error:  # no example of a size that only the data tell, or a text that cannot be read
            if isinstance(error, Error):
                raise
            return None
        return (inferred, shapes) if right else None

    def _infer(self, bundle, shapes, attributes, kind):
        """Of tensors that are nowhere (device "meta"): enough if CPU or CUDA can run the problem."""
        if kind in _launch.KINDS:
            return _launch.infer(self.op, bundle, shapes, attributes, _launch.KINDS[kind])[1]
        try:
            return _launch.infer(self.op, bundle, shapes, attributes, HOST)[1]
        except Error as error:
            if error.tag != "NOT_FOUND":
                raise
            return _launch.infer(self.op, bundle, shapes, attributes, CUDA)[1]

    def all(self, tensors):
        return [*tensors, *[None] * (len(self._description.operands) - len(tensors))]

    def plain(self, attributes):
        return [(self._names[name], value) for name, value in attributes.items()]

    # ---- derivative ----

    def setup_context(self, ctx, inputs, keyword_only_inputs, output):
        ctx.given = len(inputs)
        self.remember(ctx, ctx.needs_input_grad, inputs, keyword_only_inputs, output)

    def remember(self, ctx, needs, given, named, output):
        """`save` of what the operator took and gave."""
        spelled = dict(named)
        bundle = spelled.pop("bundle", "")
        results = output if self.result_count > 1 else (output,)
        self.save(ctx, bundle, needs, self.all(given), [None if is_absent(result) else result for result in results], dict(self.plain(spelled)))

    def backward(self, ctx, *cotangents):
        gradients = self.gradients(ctx, ctx.needs_input_grad, cotangents)
        return gradients[0] if ctx.given == 1 else tuple(gradients[:ctx.given])

    def save(self, ctx, bundle, needs, tensors, results, attributes):
        """For `gradients`, of a call; needs: of operands, whether their gradients are wanted; tensors: all operands, results: absent ones
        None."""
        ctx.bundle, ctx.backward_op = bundle, self._resolve(bundle)
        if ctx.backward_op is not None:
            _derivatives.save(ctx, ctx.backward_op, needs, tensors, results, attributes)

    def gradients(self, ctx, needs, cotangents):
        """Of all operands, None where none is wanted."""
        if ctx.backward_op is None:
            raise Error("UNIMPLEMENTED", "differentiating op %r: its family says of no op that computes its gradients; keep it out of what is "
                        "differentiated (torch.no_grad, detach), or say it by kbundle.torch.register_derivative" % self.op)
        return _derivatives.gradients(ctx, ctx.backward_op, needs, cotangents,
                                      functools.partial(_called, ctx.bundle or None))

    def _resolve(self, bundle):
        derivative = _derivatives.derivative_of(self.op)
        if derivative is None:
            return None
        if self._backward is None or self._backward[0] is not derivative:
            if isinstance(derivative, _derivatives.DerivativeFunction):
                resolved = _derivatives.resolve_function(derivative, self._description)
            else:
                described = _launch.bundle_of(bundle, derivative.op).op(derivative.op)
                resolved = _derivatives.resolve(derivative, self._description, described)
            self._backward = derivative, resolved
        return self._backward[1]


def _hint(size):
    """An example of a size: what it was in the call that is traced. Asking for it makes the program of no size."""
    if isinstance(size, int):
        return size
    found = size.node.hint
    if found is None:
        raise ValueError("%s is known to the data alone" % size)
    return int(found)


class _Shape:
    """A fake tensor whose sizes are numbers. number: how a size becomes one; by int() the traced program is of this size alone."""

    def __init__(self, tensor, number=int):
        self.dtype, self.shape = tensor.dtype, tuple(number(size) for size in tensor.shape)


def _vmap(rule, op, kernel, info, dims, *tensors, **attributes):
    """A loop over the batch."""
    if rule == "none":
        raise Error("UNIMPLEMENTED", 'vmap of op %r: its manifest says vmap = "none"; call it once per element, or batch through its own '
                    "dimensions" % op)
    made = []
    for index in range(info.batch_size):
        one = [tensor if tensor is None or dim is None else tensor.select(dim, index) for tensor, dim in zip(tensors, dims)]
        results = kernel.overload(*one, **attributes)
        made.append(results if isinstance(results, tuple) else (results,))
    results = tuple(torch.stack(column) for column in zip(*made))
    return (results, (0,) * len(results)) if len(results) > 1 else (results[0], 0)
