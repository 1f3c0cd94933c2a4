"""Eager calls of what was called before: one operator of torch whose kernel is in libkbundle.so (ffi/torch), which finds the call's plan,
allocates and launches. Python only finds out which site of calls this is: bundle, op, attributes, and which operands are given.

The long way (_operators) is what a call means. It is taken by the first call of each problem, by whatever fails, so that errors are its
errors, and under everything that wants to see or change calls: torch.compile, modes, tracers, functorch, subclasses of tensors, forward
derivatives.
"""

import ctypes
import os
import threading
import warnings
from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from kbundle import _bundle, _open_bundles
from kbundle._dtypes import dtype_number
from kbundle._errors import Error
from kbundle._library import Tensor, check, library, text
from kbundle.torch import _launch
from kbundle.torch._dtypes import NAMES

NAMESPACE = "kbundle_eager"
_MOST = 8192  # sites; then all are forgotten
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))

_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_lock = threading.Lock()
_defined = {}
_known = (None, {})  # sites, since the last change of what is open
_changes = _open_bundles.changes
note = known = None  # of _shortcut: tells it what a call did; makes a known call of a site without the dispatcher, or says None


def _without_python():
    """Whether libkbundle.so has found torch's functions; (True, whether those of CUDA too)."""
    try:
        global _dispatch_modes, _function_modes, _transforms, _tracing, _profiling
        _dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
        _transforms, _tracing = torch._C._are_functorch_transforms_active, torch._C._get_tracing_state
        _profiling = torch._C._autograd._profiler_enabled
        forward_ad._current_level
        cuda = ctypes.c_int32()
        check(library().kb_torch_load(ctypes.byref(cuda)))
        return True, cuda.value
    except (AttributeError, Error) as error:
        warnings.warn("kbundle.torch: eager calls are right, and cost the host 10 us more each: %s" % error, RuntimeWarning, stacklevel=2)
        return False, 0


enabled, cuda = _without_python()


class Site:
    """What calls have in common: the op, by the kernel (_operators._Kernel) of its operator, the bundle that serves it, attributes, and the
    indexes of the operands that are given. way(tensors): the long way, with all operands; results in a list, absent ones None.
    decided: by what of the environment the bundle was found; None: by nothing of it."""

    def __init__(self, kernel, bundle, given, attributes, way, decided):
        self.kernel, self.bundle, self.given, self._way, self.decided = kernel, bundle, given, way, decided
        self.attributes = {name: _converted(kernel.types[name], value) for name, value in attributes.items()}
        self.single, self.leading = kernel.result_count == 1, list(given) == list(range(len(given)))
        self.zeros = {name: str(value) for name, value in attributes.items() if type(value) is float and not value} or None
        self.run = _operator(kernel.op, len(given), kernel.result_count)
        out, indexes = ctypes.c_int64(), (ctypes.c_int32 * len(given))(*given)
        check(library().kb_torch_site_make(kernel.operand_count, indexes, len(given), ctypes.byref(out)))
        self.number, self._release = out.value, library().kb_torch_site_release

    def __del__(self):
        if getattr(self, "number", None):
            self._release(self.number)

    def same(self, attributes):
        """Whether zeros among attributes that are equal have their signs too."""
        for name, text in self.zeros.items():
            if str(attributes[name]) != text:
                return False
        return True

    def all(self, given):
        """Operands in the op's order."""
        tensors = [None] * self.kernel.operand_count
        for index, tensor in zip(self.given, given):
            tensors[index] = tensor
        return tensors

    def needs(self, ctx):
        """Of operands in the op's order, whether their gradients are wanted."""
        needs = ctx.needs_input_grad[1:]
        return needs if self.leading else [needed or False for needed in self.all(needs)]

    @staticmethod
    def missed(made):
        """Whether the kernel did not make the call."""
        return made is None or (type(made) is tuple and all([result is None for result in made]))

    def long(self, given):
        """Of a call that the kernel did not make, which is told how."""
        made = self._way(self.all(given))
        self.learn(given)
        return made

    def learn(self, given):
        """What cannot be told stays with the long way."""
        try:
            with torch.no_grad():
                if not self.missed(self.run(self.number, *given)):  # another thread was here
                    return
            generation, plan = _launch.plan(self.kernel.op, self.bundle, self.all(given), list(self.attributes.items()))
        except RuntimeError:  # no kernel for the device, or the bundle was closed meanwhile
            return
        teach(self.number, generation, plan, self.given)


def teach(site, generation, plan, given, decided=None):
    """Tells a site the Plan of what this thread's last call did not know. given: indexes of the operands that it had; decided: what of the
    environment the plan is good for."""
    results, aliases = (Tensor * len(plan.results))(), (ctypes.c_int32 * len(plan.results))()
    for index, result in enumerate(plan.results):
        aliases[index] = -1
        if result is not None:
            shape, dtype, alias = result
            dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
            results[index] = Tensor(1, dtype_number(NAMES[dtype]), len(shape), dims, None)
            aliases[index] = given.index(alias) if alias in given else -1
    error = library().kb_torch_learn(site, generation, plan._as_parameter_, results, aliases, len(plan.results), plan.is_small, decided)
    if error:
        library().kb_error_free(error)


class _Differentiable(torch.autograd.Function):
    """What torch.library makes of a rule in Python, without what that does for rules of any kind."""

    @staticmethod
    def forward(ctx, site, *given):
        made = None if known is None or _profiling() else known(site.number, *given)
        if made is None:
            try:
                made = site.run(site.number, *given)
            except RuntimeError:
                pass
        if made is None or (not site.single and made[0] is None and site.missed(made)):
            made = tuple(site.long(given))
        elif site.single:
            made = (made,)
        ctx.site = site
        site.kernel.save(ctx, site.bundle, site.needs(ctx), site.all(given), made, site.attributes)
        return made

    @staticmethod
    def backward(ctx, *cotangents):
        site = ctx.site
        gradients = site.kernel.gradients(ctx, site.needs(ctx), cotangents)
        return (None, *(gradients if site.leading else [gradients[index] for index in site.given]))


# Without what torch does for functorch first, which was asked for already.
_apply = super(torch.autograd.Function, _Differentiable).apply


def _converted(declared, value):
    """As torch's schema does it."""
    if declared == "float" and isinstance(value, int):
        return float(value)
    return int(value) if declared == "int" and isinstance(value, bool) else value


def environment():
    """What of the environment decides which bundle serves an op (_discovery)."""
    return os.environb.get(b"KBUNDLE_PATH", b"")


def _operator(op, given, results):
    """Of torch, for calls of an op with so many operands; run(site, operand, ..)."""
    name = op.replace(".", "_"), "o%dr%d" % (given, results)
    with _lock:
        if name not in _defined:
            operands = ", ".join(["int site", *["Tensor t%d" % index for index in range(given)]])
            made = "Tensor" if results == 1 else "(%s)" % ", ".join(["Tensor"] * results)
            _library.define("%s.%s(%s) -> %s" % (*name, operands, made))
            check(library().kb_torch_implement(text(".".join(name), "name"), cuda))
            _defined[name] = getattr(getattr(getattr(torch.ops, NAMESPACE), name[0]), name[1])._op
        return _defined[name]


# ---- which site a call is of ----

class Unknown(NamedTuple):
    """A call of a site that is not known yet."""
    key: tuple
    given: list


def attempt(bundle, op, tensors, attributes):
    """Results of a call in a tuple, absent ones None; Unknown, upon which the caller goes the long way and then says `know`; or None, where
    the call is one for the long way. bundle: a name, None for the bundle that serves the op. In one function, since each costs what a lookup
    does."""
    given, mask, wanted = [], 1, False
    for tensor in tensors:
        mask += mask
        if tensor is not None:
            if type(tensor) not in _PLAIN:
                return None
            mask += 1
            given.append(tensor)
            if tensor.requires_grad:
                wanted = True
    if _dispatch_modes() or _function_modes() or _transforms() or _tracing() is not None or forward_ad._current_level >= 0 or not given:
        return None
    of, known = _known
    if of != _changes():
        known = _sites()
    try:  # of values that are equal, types tell 1 from True; what they do not tell, `same` does
        key = (bundle, op, mask, *attributes.items(), *map(type, attributes.values())) if attributes else (bundle, op, mask)
        site = known.get(key)
        differs = site is not None and site.zeros is not None and not site.same(attributes)
    except (TypeError, ValueError, RuntimeError):  # attributes that do not hash, or are no values
        differs = True
    if differs:
        key = bundle, op, mask, *attributes, repr(attributes)
        site = known.get(key)
    if site is None or not (site.decided is None or site.decided == environment()):
        return Unknown(key, given)
    if wanted and torch.is_grad_enabled():
        made = _apply(site, *given)
    else:
        try:
            made = site.run(site.number, *given)
        except RuntimeError:  # no kernel for the device or layout; the long way says so
            return site.long(given)
        if made is None or (not site.single and made[0] is None and site.missed(made)):
            return site.long(given)
        made = (made,) if site.single else made
    if note is not None and not _profiling():
        note(site, site.number, site.decided, tuple(given), made)
    return made


def _sites():
    global _known
    of, known = _known
    if of != _changes() or len(known) > _MOST:
        known = {}
        _known = _changes(), known
    return known


def know(unknown, site):
    """Of a call that was Unknown, after it was made."""
    site.learn(unknown.given)
    _sites()[unknown.key] = site
