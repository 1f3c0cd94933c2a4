"""An op whose host variants misbehave, each in its own way, through nothing but system calls and stray writes."""

VARIANTS = ["fault", "hang", "good", "wrong", "nan", "leak", "abort", "output", "outside", "fast"]

HEAD = """\
[family]
name      = "traps"
reference = "reference.py"

[op.copy]
summary   = "y = x"
types     = { T = ["f32"] }
operands  = { x = "T[N]" }
results   = { y = "T[N]" }
tolerance = 0
problems  = [{ x = [4096] }]
"""

VARIANT = """
[[op.copy.variant]]
name     = "%(name)s"
provider = "host"
source   = "%(source)s"
flags    = %(flags)s
steps    = [{ kernel = "%(name)s_{T}", range = "N", grain = "1000000000", args = ["y", "x"] }]
"""

TRAPS = """\
#include "kbundle/host_kernel.h"

static long Call(long number, long a, long b, long c, long d = 0, long e = 0, long f = 0) {
  register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
  asm volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return number;
}
static void Copy(int64_t begin, int64_t end, float* y, const float* x) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i];
}
static void Good(int64_t begin, int64_t end, float* y, const float* x) {
  for (int repeat = 0; repeat < 8; ++repeat) {
    Copy(begin, end, y, x);
    asm volatile("" ::: "memory");
  }
}
static void Fault(int64_t begin, int64_t end, float* y, const float* x) {
  Copy(begin, end, y, x);
  *reinterpret_cast<volatile int*>(begin + 8) = 1;
}
static void Hang(int64_t begin, int64_t end, float* y, const float* x) {
  Copy(begin, end, y, x);
  for (;;) asm volatile("");
}
static void Wrong(int64_t begin, int64_t end, float* y, const float* x) {
  Copy(begin, end, y, x);
  y[end - 7] += 1;
}
static void Nan(int64_t begin, int64_t end, float* y, const float* x) {
  Copy(begin, end, y, x);
  y[end / 2] = __builtin_nanf("");
}
static void Leak(int64_t begin, int64_t end, float* y, const float* x) {
  Copy(begin, end, y, x);
  const long bytes = 1 << 20;
  char* memory = reinterpret_cast<char*>(Call(9, 0, bytes, 3, 0x22, -1, 0));  // mmap
  for (long i = 0; i < bytes; i += 4096) static_cast<volatile char*>(memory)[i] = 1;
}
static void Abort(int64_t begin, int64_t end, float* y, const float* x) {
  Copy(begin, end, y, x);
  Call(62, Call(39, 0, 0, 0), 6, 0);  // kill(getpid(), SIGABRT)
}
static void Output(int64_t begin, int64_t end, float* y, const float* x) {
  Copy(begin, end, y, x);
  for (int i = 0; i < 1000; ++i) Call(1, 1, reinterpret_cast<long>(x), 16384);
}
static void Outside(int64_t begin, int64_t end, float* y, const float* x) {
  Copy(begin, end, y, x);
  static_cast<volatile float*>(y)[end] = 1;
}
KB_HOST_KERNEL(good_f32, Good)
KB_HOST_KERNEL(fast_f32, Copy)
KB_HOST_KERNEL(fault_f32, Fault)
KB_HOST_KERNEL(hang_f32, Hang)
KB_HOST_KERNEL(wrong_f32, Wrong)
KB_HOST_KERNEL(nan_f32, Nan)
KB_HOST_KERNEL(leak_f32, Leak)
KB_HOST_KERNEL(abort_f32, Abort)
KB_HOST_KERNEL(output_f32, Output)
KB_HOST_KERNEL(outside_f32, Outside)
"""

ENDLESS = """\
#include "kbundle/host_kernel.h"

constexpr long Forever() {
  long sum = 0;
  for (long i = 0; i < 1000000000; ++i) {
    for (long k = 0; k < 1000000000; ++k) sum ^= k;
  }
  return sum;
}
constexpr long kSum = Forever();
static void Endless(int64_t begin, int64_t end, float* y, const float* x) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] + kSum;
}
KB_HOST_KERNEL(endless_f32, Endless)
"""

REFERENCE = """\
def copy(x):
    return x
"""


def write_traps(folder, endless=True):
    folder.mkdir()
    text = HEAD + "".join(VARIANT % {"name": name, "source": "traps.cc", "flags": "[]"} for name in VARIANTS)
    if endless:
        flags = '["-fconstexpr-ops-limit=9000000000000", "-fconstexpr-loop-limit=2147483647"]'
        text += VARIANT % {"name": "endless", "source": "endless.cc", "flags": flags}
    (folder / "traps.toml").write_text(text)
    (folder / "traps.cc").write_text(TRAPS)
    (folder / "endless.cc").write_text(ENDLESS)
    (folder / "reference.py").write_text(REFERENCE)
    return folder / "traps.toml"
