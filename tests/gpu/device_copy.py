"""What a copy reaches on this GPU, for bars that compare with one: a kernel of 16-byte loads and stores, which is what a memory-bound
kernel can hope for, and the driver's own copy, which on an H200 is a third slower. Bytes are those read and those written.

The reference is judged before anything is judged by it: a copy that is far from the memory's theoretical speed would let
slow kernels pass.
"""

import ctypes

SIZE = 1 << 32  # bytes of one copy: beginning and end of a shorter one show (an H200: 4.09 TB/s of 4 GiB)
LAUNCHES, REPEATS = 4, 15
LEAST_OF_THEORY = 0.8
THREADS, WORDS = 256, 4  # each thread copies 4 words of 16 bytes
MEMORY_CLOCK_KHZ, BUS_BITS = 36, 37  # CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, .._GLOBAL_MEMORY_BUS_WIDTH

_WORD = """
  ld.global.nc.L1::no_allocate.v4.u32 {{%a{0}, %b{0}, %c{0}, %d{0}}}, [%from + {1}];"""
_STORE = """
  st.global.cs.v4.u32 [%to + {1}], {{%a{0}, %b{0}, %c{0}, %d{0}}};"""
PTX = """
.version 7.4
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 p_to, .param .u64 p_from) {
  .reg .u32 %block, %thread, %a<4>, %b<4>, %c<4>, %d<4>;
  .reg .u64 %to, %from, %at, %lane;
  ld.param.u64 %to, [p_to];
  ld.param.u64 %from, [p_from];
  mov.u32 %block, %ctaid.x;
  mov.u32 %thread, %tid.x;
  mul.wide.u32 %at, %block, BLOCK_BYTES;
  mul.wide.u32 %lane, %thread, 16;
  add.u64 %at, %at, %lane;
  add.u64 %to, %to, %at;
  add.u64 %from, %from, %at;LOADSSTORES
  ret;
}
""".replace("BLOCK_BYTES", str(THREADS * WORDS * 16))
PTX = PTX.replace("LOADS", "".join(_WORD.format(i, i * THREADS * 16) for i in range(WORDS)))
PTX = PTX.replace("STORES", "".join(_STORE.format(i, i * THREADS * 16) for i in range(WORDS)))


def theory_tbps(cuda):
    """Memory clock x bus width x 2: both edges carry data."""
    device, found = ctypes.c_int(), []
    cuda.call("cuCtxGetDevice", ctypes.byref(device))
    for attribute in (MEMORY_CLOCK_KHZ, BUS_BITS):
        value = ctypes.c_int()
        cuda.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        found.append(value.value)
    return found[0] * 1e3 * found[1] / 8 * 2 / 1e12


def kernel_copy(cuda, to, source):
    """A function that enqueues the copy of SIZE bytes by the kernel above."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.call("cuModuleLoadData", ctypes.byref(module), PTX.encode())
    cuda.call("cuModuleGetFunction", ctypes.byref(function), module, b"copy")
    values = ctypes.c_uint64(to), ctypes.c_uint64(source)
    parameters = (ctypes.c_void_p * 2)(*(ctypes.addressof(v) for v in values))
    blocks = SIZE // (THREADS * WORDS * 16)

    def enqueue(keep=values):
        cuda.call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, cuda.stream, parameters, None)
    return enqueue


def driver_copy(cuda, to, source):
    return lambda: cuda.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(SIZE), cuda.stream)


def best_tbps(cuda, enqueue):
    """Of the fastest of several graphs of a few copies, after warming up."""
    graph = cuda.capture(lambda: [enqueue() for _ in range(LAUNCHES)])
    cuda.graph_us(graph, 3)
    us = min(cuda.graph_us(graph, REPEATS)) / LAUNCHES
    cuda.call("cuGraphExecDestroy", graph)
    return 2 * SIZE / us / 1e6


def copies_right(cuda, to, source, enqueue):
    """Whether ends and middle of `to` are those of `source` afterwards."""
    cuda.fill(source, 0x5a, SIZE)
    cuda.fill(to, 0, SIZE)
    cuda.synchronize()  # filled on another stream
    enqueue()
    cuda.synchronize()
    return all((cuda.download(to + at, 4096) == 0x5a).all() for at in (0, SIZE // 2, SIZE - 4096))


def reference_tbps(report, cuda):
    """TB/s of the faster of the two, with the bar that it is a plausible reference."""
    to, source, theory = cuda.allocate(SIZE), cuda.allocate(SIZE), theory_tbps(cuda)
    kernel, driver = kernel_copy(cuda, to, source), driver_copy(cuda, to, source)
    report.hold("the copy that others are compared with copies", copies_right(cuda, to, source, kernel))
    found = {"kernel": best_tbps(cuda, kernel), "driver": best_tbps(cuda, driver)}
    for address in (to, source):
        cuda.free(address)
    report.fact("device copy, TB/s", {name: round(tbps, 2) for name, tbps in found.items()})
    report.fact("the memory's theoretical speed, TB/s", round(theory, 2))
    report.bar("the copy that others are compared with, of the memory's theoretical speed", max(found.values()) / theory, LEAST_OF_THEORY,
               at_least=True)
    return max(found.values())
