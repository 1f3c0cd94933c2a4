"""A tiny host-only op family, written into a folder: fast to build, and easy to damage on purpose."""

MANIFEST = """\
[family]
name      = "tiny"
reference = "reference.py"

[op.scale]
summary    = "y = factor * x"
types      = { T = ["f32", "f64"] }
operands   = { x = "T[rows.., K]", offset = { shape = "T[K]", optional = true } }
results    = { y = "T[rows.., K]" }
attributes = { factor = { type = "float", default = 2.0 } }
require    = ["K >= 1"]
tolerance  = 1e-6
problems   = [{ T = "f32", x = [4, 33], factor = 0.5 }, { T = "f64", x = [2, 3, 8] }]

[[op.scale.variant]]
name     = "even"
provider = "host"
source   = "scale.cc"
when     = ["K % 2 == 0"]
steps    = [{ kernel = "scale_{T}", range = "rows", grain = "16",
              args = ["y", "x", "offset", "f64(factor)", "i64(K)"] }]

[[op.scale.variant]]
name     = "any"
provider = "host"
source   = "scale.cc"
steps    = [{ kernel = "scale_{T}", range = "rows", grain = "16",
              args = ["y", "x", "offset", "f64(factor)", "i64(K)"] }]

[op.negate]
summary   = "y = -x"
types     = { T = ["i32"] }
operands  = { x = "T[N]" }
results   = { y = "T[N]" }
tolerance = 0
problems  = [{ T = "i32", x = [100] }]

[[op.negate.variant]]
name     = "loop"
provider = "host"
source   = "negate.cc"
steps    = [{ kernel = "negate_{T}", range = "N", grain = "4096", args = ["y", "x"] }]
"""

SCALE = """\
#include "kbundle/host_kernel.h"
#include "rows.h"

template <typename T>
static void Scale(int64_t begin, int64_t end, T* y, const T* x, const T* offset, double factor, int64_t K) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t k = 0; k < K; ++k) {
      y[row * K + k] = static_cast<T>(factor) * x[row * K + k] + (offset ? offset[k] : ROWS_ZERO);
    }
  }
}
KB_HOST_KERNEL(scale_f32, Scale<float>);
KB_HOST_KERNEL(scale_f64, Scale<double>);
"""

ROWS = "#define ROWS_ZERO 0\n"

NEGATE = """\
#include "kbundle/host_kernel.h"

static void Negate(int64_t begin, int64_t end, int32_t* y, const int32_t* x) {
  for (int64_t i = begin; i < end; ++i) y[i] = -x[i];
}
KB_HOST_KERNEL(negate_i32, Negate);
"""

REFERENCE = """\
def scale(x, offset, *, factor=2.0):
    return factor * x + (0 if offset is None else offset)


def negate(x):
    return -x
"""


def write_tiny(folder):
    """Writes the family into `folder` and returns the manifest's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"tiny.toml": MANIFEST, "scale.cc": SCALE, "rows.h": ROWS, "negate.cc": NEGATE,
                       "reference.py": REFERENCE}.items():
        (folder / name).write_text(text)
    return folder / "tiny.toml"

CUDA_MANIFEST = """\
[family]
name      = "gpu"
reference = "reference.py"

[op.twice]
summary   = "y = 2 x"
types     = { T = ["f32", "f64"] }
operands  = { x = "T[N]" }
results   = { y = "T[N]" }
tolerance = 0
problems  = [{ T = "f32", x = [1000] }]

[[op.twice.variant]]
name     = "elementwise"
provider = "cuda"
source   = "twice.cu"
portable = true
tunables = { THREADS = [128, 256, 512] }
steps    = [{ kernel = "twice<{T}, {THREADS}>", grid = ["ceil_div(N, THREADS)"], block = ["THREADS"],
              args = ["y", "x", "i64(N)"] }]
"""

TWICE = """\
template <typename T, int THREADS>
__global__ void twice(T* y, const T* x, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""


def write_cuda(folder):
    """Writes an op with CUDA variants only and returns the manifest's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.toml").write_text(CUDA_MANIFEST)
    (folder / "twice.cu").write_text(TWICE)
    (folder / "reference.py").write_text("def twice(x):\n    return 2 * x\n")
    return folder / "gpu.toml"
