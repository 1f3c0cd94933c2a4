"""The C++ and CUDA that Warp generates for one kernel: what is read in it, and what is put behind it for the CPU. Part of
the program of child.py."""
import re


class Text:
    """What Warp generated for one kernel: which of its statements touch which of its arrays."""

    def __init__(self, source, entry):
        self.source = re.sub(r"//[^\n]*", "", source)
        begin = self.source.index("%s(\n" % entry)
        self.body = self.source[begin:self.source.index("\n}\n", begin)]
        self.loops = "goto " in self.body

    def _uses(self, label):
        name = re.compile(r"\bvar_%s\b(?!\.(?:shape|strides))" % re.escape(label))
        lines = self.body[self.body.index("{\n"):].splitlines()
        return [line.strip() for line in lines if name.search(line) and "_wp_args->" not in line]

    def reads(self, label):
        written = re.compile(r"^(var_\w+ = )?wp::(array_store|atomic_(add|sub))\(var_%s," % re.escape(label))
        return any(not written.match(line) for line in self._uses(label))

    def only_reads_adjoint(self, label):
        """Whether the adjoint of this array is the same without clearing it where it was overwritten."""
        uses = self._uses(label)
        added = re.compile(r"^(var_\w+ = )?wp::atomic_(add|sub)\(var_%s," % re.escape(label))
        stored = re.compile(r"^wp::array_store\(var_%s," % re.escape(label))
        if all(added.match(line) for line in uses):
            return True
        return len(uses) == 1 and bool(stored.match(uses[0])) and not self.loops

    def tiles(self):
        return bool(re.search(r"wp::(adj_)?tile_(?!shared_storage)", self.source))

    def must_run_at_once(self):
        if re.search(r"\batomic_\w+\(", self.source):
            return "adds to memory that other elements add to as well, which Warp does not do atomically on the CPU"
        return "works on tiles, whose memory is one for the whole kernel" if self.tiles() else ""


# Where the memory of tiles is, Warp keeps in one variable for all threads: one launch after the other.
ONE_AT_A_TIME = """while (__atomic_exchange_n(&kb_busy, 1, __ATOMIC_ACQUIRE) != 0) __builtin_ia32_pause();
  {
    wp::tile_shared_storage_t tile_mem;
#if defined(WP_ENABLE_TILES_IN_STACK_MEMORY)
    wp::shared_tile_storage = &tile_mem;
#endif
    %s
  }
  __atomic_store_n(&kb_busy, 0, __ATOMIC_RELEASE);"""


def host_kernel(name, symbol, kernel, adjoint, tiles):
    """C++ behind Warp's own: the kernel for a part of its elements, as kbundle/host_kernel.h has it."""
    labels = [arg.label for arg in kernel.adj.args]
    dims = kernel.adj.kernel_dim
    sides = [("a", 1), ("b", 1 + len(labels))] if adjoint else [("a", 1)]
    fill = "".join("  %s.%s = kb_value<decltype(%s.%s)>(args[%d]);\n" % (side, label, side, label, first + i)
                   for side, first in sides for i, label in enumerate(labels))
    flat = [arg.label for arg in kernel.adj.args if type(arg.type).__name__ == "array" and arg.type.ndim == 1]
    dense = " && ".join("%s.%s.strides[0] == static_cast<int32_t>(sizeof(*%s.%s.data))" % (s, x, s, x) for s, _ in sides for x in flat)
    all_flat = dims == 1 and flat and len(flat) == sum(type(arg.type).__name__ == "array" for arg in kernel.adj.args)
    way = "backward" if adjoint else "forward"
    call = "kb_tasks<%%s>(&dim, begin, end, &a%s)" % (", &b" if adjoint else "")
    loop = call % "false" + ";"
    if all_flat:  # addresses one behind the other, as Warp's own entry distinguishes it
        loop = "if (%s) {\n    %s;\n  } else {\n    %s\n  }" % (dense, call % "true", loop)
    if tiles:
        loop = ONE_AT_A_TIME % loop
    sizes = ["sizeof(wp::launch_bounds_t<%d>)" % dims] + ["sizeof(wp_args_%s::%s)" % (name, label) for _ in sides for label in labels]
    return """
namespace {
int kb_busy;
template <typename T> inline T kb_value(const void* at) { T v; __builtin_memcpy(&v, at, sizeof v); return v; }
// As Warp's own loop over all of them is: one function with the kernel inside.
template <bool linear, typename... A>
WP_FORCEINLINE void kb_tasks(wp::launch_bounds_t<%(dims)d>* dim, int64_t begin, int64_t end, A*... args) {
  const wp::launch_bounds_t<%(dims)d> bounds = *dim;
  const size_t first = static_cast<size_t>(begin), past = static_cast<size_t>(end);
  for (size_t i = first; i < past; ++i) %(name)s_cpu_kernel_%(way)s<linear>(bounds, i, args...);
}
}
extern "C" {
int _wp_isfinite(double x) { return __builtin_isfinite(x); }
int _wp_isnan(double x) { return __builtin_isnan(x); }
int _wp_isinf(double x) { return __builtin_isinf(x); }
// In a section of its own, which is left out where nothing asserts.
__attribute__((section(".text.kb_assert"))) void _wp_assert(const char* what, const char* file, unsigned line) {
  printf("Assertion failed: '%%s'\\nAt '%%s:%%u'\\n", what, file, line);
  __builtin_trap();
}
void %(symbol)s(int64_t begin, int64_t end, const void* const* args) {
  wp::launch_bounds_t<%(dims)d> dim = kb_value<wp::launch_bounds_t<%(dims)d>>(args[0]);
  dim.size /= dim.coord_mult;
  dim.coord_mult = 1;  // one lane does a block's work here
  wp_args_%(name)s a%(b)s;
%(fill)s  %(loop)s
}
struct kb_params_t { uint32_t count; uint32_t sizes[%(count)d]; };
extern const kb_params_t %(symbol)s_kb_params;
const kb_params_t %(symbol)s_kb_params = {%(count)d, {%(sizes)s}};
}
""" % {"symbol": symbol, "dims": dims, "name": name, "b": ", b" if adjoint else "", "fill": fill, "loop": loop, "way": way,
       "count": len(sizes), "sizes": ", ".join(sizes)}
