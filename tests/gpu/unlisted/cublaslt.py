"""cuBLASLt asked directly, by ctypes: a product described as loader/provider/cublaslt/matrix_product.h does it, what the heuristic names
for it, whether a stored algorithm passes, a launch. So rules of choice can be compared without building a bundle for each."""

import ctypes

import launch_cost

TYPES = {"f32": 0, "f16": 2, "bf16": 14}
EPILOGUES = {"none": 1, "bias": 4, "gelu": 32}
LIMIT = 32 << 20  # bytes of workspace
Eight, ThirtyTwo = ctypes.c_uint64 * 8, ctypes.c_uint64 * 32


class Found(ctypes.Structure):
    _fields_ = [("algorithm", Eight), ("workspace", ctypes.c_size_t), ("status", ctypes.c_int32), ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int32 * 4)]


class Lt:
    def __init__(self):
        self.library, self.handle = launch_cost.library("libcublasLt.so.13"), ctypes.c_void_p()
        self.call("cublasLtCreate", ctypes.byref(self.handle))

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")


def sized(value):
    return ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))


class Product:
    """d[rows, columns] = act(a[rows, inner] b[inner, columns] + bias), row by row: the product of b and a for a library that counts
    column by column."""

    def __init__(self, lt, dtype, rows, inner, columns, epilogue, bias):
        self.lt, self.bytes, kind = lt, 4 if dtype == "f32" else 2, TYPES[dtype]
        self.desc, self.a, self.b, self.d = ThirtyTwo(), Eight(), Eight(), Eight()
        compute = 77 if dtype == "f32" else 68
        lt.call("cublasLtMatmulDescInit_internal", self.desc, ctypes.c_size_t(256), compute, 0)
        self.set(7, ctypes.c_uint32(EPILOGUES[epilogue]))
        if epilogue == "bias":
            self.set(8, ctypes.c_void_p(bias))
            self.set(26, ctypes.c_int32(kind))
        for layout, down, across in ((self.a, columns, inner), (self.b, inner, rows), (self.d, columns, rows)):
            lt.call("cublasLtMatrixLayoutInit_internal", layout, ctypes.c_size_t(64), kind, ctypes.c_uint64(down), ctypes.c_uint64(across),
                    ctypes.c_int64(down))
        self.strides = (columns * self.bytes, inner * self.bytes, columns * self.bytes, columns * self.bytes)
        self.alpha, self.beta = ctypes.c_float(1), ctypes.c_float(0)

    def set(self, attribute, value):
        self.lt.call("cublasLtMatmulDescSetAttribute", self.desc, attribute, *sized(value))

    def heuristic(self, wanted):
        """[(algorithm, workspace)], best first."""
        preference, found, count = Eight(), (Found * wanted)(), ctypes.c_int()
        self.lt.call("cublasLtMatmulPreferenceInit_internal", preference, ctypes.c_size_t(64))
        for attribute, value in [(1, ctypes.c_uint64(LIMIT)), *((a, ctypes.c_uint32(16)) for a in (5, 6, 7, 8))]:
            self.lt.call("cublasLtMatmulPreferenceSetAttribute", preference, attribute, *sized(value))
        self.lt.call("cublasLtMatmulAlgoGetHeuristic", self.lt.handle, self.desc, self.a, self.b, self.d, self.d, preference, wanted, found,
                     ctypes.byref(count))
        return [(Eight.from_buffer_copy(one.algorithm), one.workspace) for one in found[:count.value] if one.status == 0]

    def passing(self, stored):
        """(algorithm, workspace) of a stored one, or None where cuBLASLt or its alignment refuses it here."""
        algorithm, found = Eight.from_buffer_copy(stored), Found()
        refused = self.lt.library.cublasLtMatmulAlgoCheck(self.lt.handle, self.desc, self.a, self.b, self.d, self.d, algorithm, ctypes.byref(found))
        if refused or found.workspace > LIMIT:
            return None
        for capability, stride in zip((16, 17, 18, 19), self.strides):
            least, written = ctypes.c_uint32(), ctypes.c_size_t()
            self.lt.library.cublasLtMatmulAlgoCapGetAttribute(algorithm, capability, *sized(least), ctypes.byref(written))
            if least.value and stride % least.value:
                return None
        return algorithm, found.workspace

    def launch(self, choice, a, b, d, workspace, stream):
        algorithm, size = choice
        at = ctypes.c_void_p
        self.lt.call("cublasLtMatmul", self.lt.handle, self.desc, ctypes.byref(self.alpha), at(b), self.a, at(a), self.b, ctypes.byref(self.beta),
                     at(d), self.d, at(d), self.d, algorithm, at(workspace), ctypes.c_size_t(size), stream)
