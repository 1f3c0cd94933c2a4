"""Memory and streams of the two places where a plan runs, without any framework.

Every result buffer is poisoned before a launch and lies between guard bytes that are checked after
it, so that an element nobody wrote and an element written outside are both seen.
"""

import ctypes
import statistics

import ml_dtypes
import numpy as np

from conformance import capi

NUMPY = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16,
         "u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64, "f16": np.float16,
         "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e8m0": ml_dtypes.float8_e8m0fnu}
GUARD = 256
GUARD_BYTE, POISON_BYTE = 0xA5, 0xFF


class CudaError(Exception):
    pass


class Host:
    """The CPU. Addresses are offsets into NumPy arrays that this object keeps alive."""

    kind, stream = capi.HOST, None

    def __init__(self, threads=2):
        self.threads = threads
        self._buffers = {}

    def enter_thread(self):
        pass

    def allocate(self, size):
        array = np.empty(size + 256, np.uint8)
        address = (array.ctypes.data + 255) // 256 * 256
        self._buffers[address] = array
        return address

    def free(self, address):
        del self._buffers[address]

    def upload(self, address, array):
        array = np.ascontiguousarray(array)
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, address, size):
        return np.frombuffer(ctypes.string_at(address, size), np.uint8)

    def fill(self, address, byte, size):
        ctypes.memset(address, byte, size)

    def synchronize(self):
        pass

    def run_captured(self, enqueue):
        enqueue()  # there are no graphs


class Cuda:
    """One GPU through the driver API. The primary context is made current in this thread."""

    kind, threads = capi.CUDA, 1

    def __init__(self, ordinal=0):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, device)
        self.name = name.value.decode()
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.context = context
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)  # CU_STREAM_NON_BLOCKING
        self.stream = stream

    def enter_thread(self):
        """To be called by a thread other than the one that made this: a driver's context is a thread's own."""
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *args):
        code = getattr(self.driver, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(f"{name}: {code} {(text.value or b'').decode()}")

    def driver_version(self):
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address, array):
        array = np.ascontiguousarray(array)
        if array.nbytes:
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data),
                      ctypes.c_size_t(array.nbytes))
            self._arrived()

    def _arrived(self):
        """The driver returns from a fill, and from a copy of pageable memory, before they are done, on a stream that ours does not
        wait for: on a busy GPU a launch would be overtaken by the poison in front of it."""
        self.call("cuStreamSynchronize", None)

    def download(self, address, size):
        array = np.empty(size, np.uint8)
        if size:
            self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address),
                      ctypes.c_size_t(size))
        return array

    def fill(self, address, byte, size):
        if size:
            self.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size))
            self._arrived()

    def synchronize(self):
        self.call("cuCtxSynchronize")

    def capture(self, enqueue):
        """A ready graph of what enqueue() puts on this stream. enqueue may raise: the capture is ended."""
        self.call("cuStreamBeginCapture_v2", self.stream, 1)  # THREAD_LOCAL
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            enqueue()
        finally:
            self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        self.call("cuGraphDestroy", graph)
        return ready

    def launch_graph(self, graph):
        self.call("cuGraphLaunch", graph, self.stream)

    def update_graph(self, ready, enqueue):
        """The ready graph with what enqueue() puts on this stream now; False where the driver wants a new one."""
        graph, found = ctypes.c_void_p(), (ctypes.c_uint64 * 4)()
        self.call("cuStreamBeginCapture_v2", self.stream, 1)  # THREAD_LOCAL
        try:
            enqueue()
        finally:
            self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        code = self.driver.cuGraphExecUpdate_v2(ready, graph, found)
        self.call("cuGraphDestroy", graph)
        return code == 0

    def run_captured(self, enqueue):
        """enqueue() once, by way of a captured graph."""
        graph = self.capture(enqueue)
        self.launch_graph(graph)
        self.synchronize()
        self.call("cuGraphExecDestroy", graph)

    def graph_us(self, graph, repeats):
        """Device microseconds of each of `repeats` launches, between events."""
        events = []
        for _ in range(repeats + 1):
            event = ctypes.c_void_p()
            self.call("cuEventCreate", ctypes.byref(event), 0)
            events.append(event)
        self.call("cuEventRecord", events[0], self.stream)
        for event in events[1:]:
            self.launch_graph(graph)
            self.call("cuEventRecord", event, self.stream)
        self.call("cuStreamSynchronize", self.stream)
        times = []
        for before, after in zip(events, events[1:]):
            ms = ctypes.c_float()
            self.call("cuEventElapsedTime_v2" if hasattr(self.driver, "cuEventElapsedTime_v2") else
                      "cuEventElapsedTime", ctypes.byref(ms), before, after)
            times.append(ms.value * 1e3)
        for event in events:
            self.call("cuEventDestroy_v2", event)
        return times

    def device_us(self, launch, launches, repeats):
        """Microseconds of one launch: the median of `repeats` runs of a graph of `launches`, warm."""
        graph = self.capture(lambda: [launch() for _ in range(launches)])
        self.graph_us(graph, 3)
        return statistics.median(self.graph_us(graph, repeats)) / launches


class Buffer:
    """An operand or result on a device, `offset` bytes past 256-byte alignment, between guard bytes."""

    def __init__(self, device, dtype, dims, offset=0):
        self.device, self.dtype, self.dims = device, NUMPY[dtype], tuple(dims)
        self.size = int(np.prod(dims, dtype=np.int64)) * np.dtype(self.dtype).itemsize
        self.base = device.allocate(self.size + offset + 2 * GUARD)
        self.address = self.base + GUARD + offset
        device.fill(self.base, GUARD_BYTE, GUARD + offset)
        device.fill(self.address + self.size, GUARD_BYTE, GUARD)
        self.before = GUARD + offset

    def put(self, array):
        self.device.upload(self.address, np.asarray(array).astype(self.dtype))
        return self

    def poison(self):
        self.device.fill(self.address, POISON_BYTE, self.size)
        return self

    def get(self):
        return self.device.download(self.address, self.size).view(self.dtype).reshape(self.dims)

    def guards_whole(self):
        before = self.device.download(self.base, self.before)
        after = self.device.download(self.address + self.size, GUARD)
        return bool(np.all(before == GUARD_BYTE) and np.all(after == GUARD_BYTE))

    def free(self):
        self.device.free(self.base)
