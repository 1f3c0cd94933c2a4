"""Execution plans of a bundle run by cuDNN's backend functions alone, without the loader: what the loader's own costs are measured
against.
"""

import ctypes
import re
import struct
import subprocess

import launch_cost
from launch_cost import cell

ROOT = launch_cost.ROOT
BUNDLE = str(ROOT / "build/kernels.kb")
MANIFESTS = [ROOT / "kernels/attention" / name for name in ("attention.toml", "forward.toml", "backward.toml")]
SCORE_SCALARS = 8  # that a modifier may have
# Numbers of cudnn_graph.h.
PLAN, PACK = 5, 16
PLAN_HANDLE, PLAN_JSON, PACK_UIDS, PACK_POINTERS, PACK_WORKSPACE = 400, 405, 1000, 1001, 1003
TYPE_HANDLE, TYPE_INT64, TYPE_POINTER, TYPE_CHAR = 0, 3, 6, 24


def version_text(number):
    """9.19.0 of 91900, as cudnnGetVersion counts."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


class Blob:
    """An execution plan as the bundle holds it (schemas/FORMAT.md, section 6)."""

    def __init__(self, data):
        self.data, self.at = data, 0
        magic = self.text()
        if not magic.startswith("kbundle execution plan"):
            raise ValueError(f"an execution plan begins with {magic!r}")
        self.cudnn, self.workspace_bytes, self.own_offset = self.take("QQQ")
        self.uids = [self.take("q")[0] for _ in range(self.take("I")[0])]
        self.parts = [self.take("qQ") for _ in range(self.take("I")[0])]
        self.scalars = [self.take("qBQ") for _ in range(self.take("I")[0])]
        self.device = [(self.text(), *self.take("ii")) for _ in range(self.take("I")[0])]
        self.plan = self.text()

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def text(self):
        size, = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()


def blob_of(variant):
    found = subprocess.run([str(ROOT / "build/release/kbundle"), "extract", BUNDLE, variant, "--step", "1", "-o", "-"], capture_output=True)
    if found.returncode:
        raise RuntimeError(f"kbundle extract {variant}: {found.stderr.decode()[-300:]}")
    return Blob(found.stdout)


def entries(text, opening):
    """The `name = value` of the table that opens behind `opening`, in the manifest's order."""
    text = text[text.index(opening) + len(opening):]
    found, depth, begin = [], 0, 0
    for at, c in enumerate(text):
        if depth == 0 and c in ",}":
            found.append([part.strip() for part in text[begin:at].split("=", 1)])
            begin = at + 1
        if depth == 0 and c == "}":
            return found
        depth += (c in "[{") - (c in "]}")


def arguments_of(op):
    """What the uids 1, 2, .. of an op's plans are, by name: tensors, then scalars, in the manifest's order, then those of modifiers."""
    text = "".join(path.read_text() for path in MANIFESTS)
    defined = dict(re.findall(r"^  (\w+)\s*= (.*)$", text, re.M))
    graph = text[text.index(f'graph = "sdpa{op.split(".")[1].removeprefix("sdpa").removesuffix("_forward")}"'):]
    tensors = []
    for name, value in entries(graph, "tensors = {"):
        value = defined.get(value.strip('"{}'), value)
        tensors += re.findall(r'tensor = "(\w+)"', value) or [name]
    scalars = [name for name, _ in entries(graph, "scalars = {")]
    return tensors + scalars + [f"score_scalars{i}" for i in range(SCORE_SCALARS)] + ["score_tensor0", "score_tensor1"]


class Cudnn:
    """The few functions of cuDNN's backend that running a plan takes."""

    def __init__(self, driver_version):
        self.lib, self.driver_version = launch_cost.library("libcudnn.so.9"), driver_version

    def check(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status:
            text = ctypes.create_string_buffer(512)
            self.lib.cudnnGetLastErrorString(text, ctypes.c_size_t(512))
            raise RuntimeError(f"{name}: {status}: {text.value.decode()}")

    def handle(self):
        made = ctypes.c_void_p()
        self.check("cudnnCreate", ctypes.byref(made))
        return made

    def descriptor(self, kind, attributes):
        made = ctypes.c_void_p()
        self.check("cudnnBackendCreateDescriptor", kind, ctypes.byref(made))
        for attribute, type_, count, values in attributes:
            self.check("cudnnBackendSetAttribute", made, attribute, type_, ctypes.c_int64(count), values)
        self.check("cudnnBackendFinalize", made)
        return made

    def plan(self, handle, blob):
        text = re.sub(r'"driverVer":\d+', f'"driverVer":{self.driver_version}', blob.plan).encode()
        return self.descriptor(PLAN, [(PLAN_HANDLE, TYPE_HANDLE, 1, ctypes.byref(handle)), (PLAN_JSON, TYPE_CHAR, len(text), ctypes.c_char_p(text))])


class Pack:
    """What a call hands over: tensors by device address, numbers by host address, its share of the workspace."""

    def __init__(self, blob, names, addresses, numbers, workspace):
        self.count, self.kept = len(blob.uids), []
        parts = {uid: workspace + offset for uid, offset in blob.parts}
        fixed = {uid: bits for uid, _, bits in blob.scalars}
        pointers = [parts.get(uid) or self.host(struct.pack("<Q", fixed[uid]) if uid in fixed else None, names, numbers, uid)
                    or addresses[names[uid - 1]] for uid in blob.uids]
        self.uids = (ctypes.c_int64 * self.count)(*blob.uids)
        self.pointers = (ctypes.c_void_p * self.count)(*pointers)
        self.workspace = ctypes.c_void_p(workspace + blob.own_offset)

    def host(self, fixed, names, numbers, uid):
        """The address of a number, or None."""
        if fixed is None and (uid > len(names) or names[uid - 1] not in numbers):
            return None
        self.kept.append(ctypes.create_string_buffer(fixed or struct.pack("<f", numbers[names[uid - 1]]), 8))
        return ctypes.addressof(self.kept[-1])

    def attributes(self):
        return [(PACK_UIDS, TYPE_INT64, self.count, self.uids), (PACK_POINTERS, TYPE_POINTER, self.count, self.pointers),
                (PACK_WORKSPACE, TYPE_POINTER, 1, ctypes.byref(self.workspace))]


def direct_calls(cudnn, handle, plan, pack):
    """cudnnBackendExecute alone, and with a pack made and dropped for each call."""
    ready = cudnn.descriptor(PACK, pack.attributes())
    alone = launch_cost.sequence([(cudnn.lib.cudnnBackendExecute, [cell(handle.value), cell(plan.value), cell(ready.value)], True)])
    made, where = cell(), lambda x: cell(ctypes.addressof(x))
    steps = [(cudnn.lib.cudnnBackendCreateDescriptor, [cell(PACK), where(made)], True)]
    for attribute, type_, count, values in pack.attributes():
        values = values if isinstance(values, ctypes.Array) else pack.workspace
        steps.append((cudnn.lib.cudnnBackendSetAttribute, [made, cell(attribute), cell(type_), cell(count), where(values)], True))
    steps += [(cudnn.lib.cudnnBackendFinalize, [made], True),
              (cudnn.lib.cudnnBackendExecute, [cell(handle.value), cell(plan.value), made], True),
              (cudnn.lib.cudnnBackendDestroyDescriptor, [made], True)]
    whole = launch_cost.sequence(steps)
    whole.also = alone.also = pack, made, ready
    return alone, whole


class Anywhere(dict):
    """An address for every name, aligned and different from others."""

    def __missing__(self, name):
        self[name] = (len(self) + 1) << 32
        return self[name]


def touch(cuda, cudnn, handle, plan, blob, names):
    """Enqueues a plan on a stream that captures, with addresses that nobody looks behind: its kernels are loaded."""
    pack = Pack(blob, names, Anywhere(), {name: 1.0 for name in names if name.startswith("scale") or name.startswith("score_scalars")}, 1 << 52)
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.call("cuStreamCreate", ctypes.byref(stream), 1)
    cuda.call("cuStreamBeginCapture_v2", stream, 2)  # RELAXED
    try:
        cudnn.check("cudnnSetStream", handle, stream)
        cudnn.check("cudnnBackendExecute", handle, plan, cudnn.descriptor(PACK, pack.attributes()))
    finally:
        cuda.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    cuda.call("cuGraphDestroy", graph)
    cuda.call("cuStreamDestroy_v2", stream)
