"""Launching an op on tensors: operands checked, a plan for their problem from a cache, results allocated, one call of the C ABI.

Plans are kept until the policy changes or a bundle is opened or closed, since both may change what is chosen.
"""

import contextlib
import ctypes
import math
import threading

import torch

from kbundle import _open_bundles, _policy, _spec
from kbundle._bundle import CUDA, HOST
from kbundle._c_spec import c_spec
from kbundle._discovery import default_bundle
from kbundle._errors import Error
from kbundle._library import check, library, text
from kbundle.torch._dtypes import NAMES, TORCH

KINDS = {"cpu": HOST, "cuda": CUDA}
ABSENT = (0,) * 17  # the shape of a result that a call does not have: no tensor of an op has so many dims
_MOST = 8192
_ALIGNMENT = 256  # of workspaces; tensors without elements get an address so aligned, and nobody reads there
_NOWHERE = ctypes.create_string_buffer(2 * _ALIGNMENT)
_PLACE = -(-ctypes.addressof(_NOWHERE) // _ALIGNMENT) * _ALIGNMENT

# Threads are made for a call, for 50 us; a problem whose tensors are smaller than this is done before that.
_FEW_BYTES = 32 << 10

_plans = (None, {})
_thread = threading.local()


class Plan:
    """What a call of one problem on one device needs. results: (shape, dtype, operand that it is written over or -1) of each, None of
    those that are absent; handle: a kb_plan, None where there is nothing to compute."""

    def __init__(self, bundle, op, operands, attributes, kind):
        inferred = bundle.infer(op, operands, attributes, kind)
        self.kind, self._as_parameter_ = kind, None
        self.results = [(tuple(found["dims"]), TORCH[found["dtype"]], result.alias) if found["present"] else None
                        for result, found in zip(bundle.op(op).results, inferred["results"])]
        self._release = library().kb_plan_release
        tensors = [(one[1], TORCH[one[0]]) for one in operands if one] + [one[:2] for one in self.results if one]
        self.is_small = sum(math.prod(shape) * dtype.itemsize for shape, dtype in tensors) < _FEW_BYTES
        self.workspace = 0
        if not inferred["empty"]:
            out = ctypes.c_void_p()
            spec = c_spec(operands, attributes)
            check(library().kb_plan_make(bundle._live, text(op, "op"), ctypes.byref(spec), kind, -1, ctypes.byref(out)))
            self._as_parameter_ = out
            self.workspace = library().kb_plan_workspace_bytes(out)

    def __del__(self):
        if getattr(self, "_as_parameter_", None):
            self._release(self._as_parameter_)


def run(op, bundle, tensors, attributes):
    """The results of an op, a list; attributes: (name, value) pairs. On the current stream of the device that the tensors are on."""
    device = device_of(op, tensors)
    tensors = [None if tensor is None else tensor.contiguous() for tensor in tensors]
    if device.type == "cpu":
        return _launch(op, bundle, tensors, attributes, device)
    with torch.cuda.device(device):
        _make_context_current()
        return _launch(op, bundle, tensors, attributes, device)


def plan(op, bundle, tensors, attributes):
    """(the policy's generation before it was made, the Plan of a call of `run`)."""
    device = device_of(op, tensors)
    with contextlib.nullcontext() if device.type == "cpu" else torch.cuda.device(device):
        if device.type != "cpu":
            _make_context_current()
        now = _policy.generation()
        return now, _plan(op, bundle, tensors, attributes, device)


def check_plain(op, tensors):
    """An error where an operand is no tensor whose elements lie in strides."""
    for index, tensor in enumerate(tensors):
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise Error("INVALID_ARGUMENT", "calling op %r: an operand is a %s; give tensors, and None for what is left out" % (op, type(tensor)))
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else "of layout %s" % tensor.layout
            raise Error("INVALID_ARGUMENT", "calling op %r: operand %d is %s; ops take plain tensors: %s" % (op, index, kind, {
                "nested": "pad it (torch.nested.to_padded_tensor), or give its values() with offsets to an op of ragged rows",
                "quantized": "make floats of it, or give its codes and scale to an op that takes them"}.get(kind, "give x.to_dense()")))


def device_of(op, tensors, kinds=KINDS):
    """Where all of them are, or an error that names the one which is elsewhere."""
    device = None
    for index, tensor in enumerate(tensors):
        if tensor is None:
            continue
        if device is None:
            device = tensor.device
        elif tensor.device != device:
            raise Error("INVALID_ARGUMENT", "calling op %r: operand %d is on %s, those before it are on %s; move it there with "
                        ".to(%r)" % (op, index, tensor.device, device, str(device)))
    if device.type not in kinds:
        raise Error("INVALID_ARGUMENT", "calling op %r: its tensors are on %s; kernels are for cpu and cuda, move them there" % (op, device))
    return device


def bundle_of(name, op):
    """The bundle that is open under a name; of "" the one that serves the op (kbundle.bundles)."""
    return _open_bundles.find(name, op) if name else default_bundle(op)


def operands_of(op, tensors):
    """In the normal form of _spec."""
    return tuple(None if tensor is None else (_dtype_name(op, index, tensor.dtype), tuple(tensor.shape))
                 for index, tensor in enumerate(tensors))


def _dtype_name(op, index, dtype):
    if dtype not in NAMES:
        raise Error("INVALID_ARGUMENT", "calling op %r: operand %d is %s, which no op takes; known are %s"
                    % (op, index, dtype, ", ".join(str(known) for known in NAMES)))
    return NAMES[dtype]


def infer(op, bundle, tensors, attributes, kind):
    """What kb_infer says of a call whose tensors need not exist."""
    bundle = bundle_of(bundle, op)
    return bundle.op(op), bundle.infer(op, operands_of(op, tensors), bundle.normal_attributes(op, dict(attributes)), kind)


def _plan(op, bundle, tensors, attributes, device):
    """From the cache, or made. Without a lock: what two threads miss is made twice, and one of both is kept."""
    global _plans
    now = _policy.generation(), _open_bundles.changes()
    of, known = _plans
    if of != now or len(known) >= _MOST:
        known = {}
        _plans = now, known
    if bundle:
        source = bundle
    else:  # what serves the op may change with the environment
        source = default_bundle(op)
    exact = tuple((name, repr(value)) for name, value in attributes)  # repr tells -0.0 from 0.0
    key = op, source, device, exact, tuple(None if t is None else (t.dtype, t.shape) for t in tensors)
    plan = known.get(key)
    if plan is None:
        source = bundle_of(bundle, op)
        normal = source.normal_attributes(op, dict(attributes))
        plan = known[key] = Plan(source, op, operands_of(op, tensors), normal, KINDS[device.type])
    return plan


def _launch(op, bundle, tensors, attributes, device):
    plan = _plan(op, bundle, tensors, attributes, device)
    results = []
    for result in plan.results:
        if result is None:
            results.append(torch.empty(ABSENT, dtype=torch.uint8, device=device))
        elif result[2] >= 0 and tensors[result[2]] is not None:  # in place, in a copy: the operand stays what it was
            tensors[result[2]] = tensors[result[2]].clone()
            results.append(tensors[result[2]])
        else:
            made = torch.empty if plan._as_parameter_ else torch.zeros
            results.append(made(result[0], dtype=result[1], device=device))
    if not plan._as_parameter_:
        return results
    workspace = 0
    if plan.workspace:
        held = torch.empty(plan.workspace + _ALIGNMENT, dtype=torch.uint8, device=device)
        workspace = -(-held.data_ptr() // _ALIGNMENT) * _ALIGNMENT
    inputs = _addresses(tensors)
    outputs = _addresses(None if described is None else result for result, described in zip(results, plan.results))
    if plan.kind == HOST:
        threads = 1 if plan.is_small else min(torch.get_num_threads(), 1024)
        error = library().kb_plan_launch_threads(plan, threads, inputs, outputs, workspace)
    else:
        error = library().kb_plan_launch_cuda(plan, torch._C._cuda_getCurrentRawStream(device.index), inputs, outputs, workspace)
    check(error)
    return results


def _addresses(tensors):
    addresses = [0 if tensor is None else tensor.data_ptr() or _PLACE for tensor in tensors]
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


def _make_context_current():
    """A thread that CUDA's runtime has not been called on has no context of the driver's yet, though torch knows its device."""
    if getattr(_thread, "has_context", False):
        return
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    device = ctypes.c_int()
    if driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and not context.value:
        failed = (driver.cuDeviceGet(ctypes.byref(device), torch.cuda.current_device()) or
                  driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or driver.cuCtxSetCurrent(context))
        if failed:
            raise Error("UNAVAILABLE", "making the context of cuda:%d current on a thread: the driver says error %d; set the device on "
                        "this thread by torch.cuda.set_device first" % (torch.cuda.current_device(), failed))
    _thread.has_context = True
