"""Runs inside the Python that has Warp: compiles one kernel per line of its descriptor 3.

`python -s -c THIS probe` prints what is installed; `python -s -c THIS serve FOLDER SOURCE OUT` answers one JSON
line with one JSON line, on its descriptor 4: a cubin, or for the CPU an object that exports the kernel as a host
kernel of kbundle. Its working folder is its own and takes all that Warp writes. No GPU is looked for. `Text` and
`host_kernel` are of generated.py, which stands before it.
"""
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
import traceback

BUILD = "build"  # relative, so that no path of this machine gets into an assertion's text


def probe():
    import hashlib
    found = {"python": "%d.%d.%d" % sys.version_info[:3], "version": "", "record": ""}
    try:
        distribution = importlib.metadata.distribution("warp-lang")
        found["version"] = distribution.version
        # RECORD holds a digest of every file that was installed, of its compilers too.
        record = distribution.read_text("RECORD") or ""
        rows = sorted(row for row in record.splitlines() if not row.rsplit(",", 2)[0].endswith(".pyc")
                      and "INSTALLER" not in row and "REQUESTED" not in row and not row.startswith("../"))
        found["record"] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    except importlib.metadata.PackageNotFoundError:
        pass
    print(json.dumps(found))


class Refused(Exception):
    """The source and the manifest do not go together; `at` says where in the manifest."""

    def __init__(self, message, note="", **at):
        super().__init__(message)
        self.note, self.at = note, at


SCALARS = {"bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
           "int64": "i64", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


def described(dtype):
    """{"scalar": "f32", "shape": [3]} of vec3, as the manifest's side has it; None of what has no such form."""
    dtype = {float: "float32", int: "int32", bool: "bool"}.get(dtype, dtype)
    if isinstance(dtype, str):
        return {"scalar": SCALARS[dtype], "shape": []}
    scalar = getattr(dtype, "_wp_scalar_type_", dtype)
    name = SCALARS.get(getattr(scalar, "__name__", ""))
    return name and {"scalar": name, "shape": list(getattr(dtype, "_shape_", ()))}


def in_words(one):
    shape = "[%s]" % ", ".join(map(str, one["shape"])) if one["shape"] else ""
    element = one["scalar"] + shape
    return "a %d-dimensional array of %s" % (one["rank"], element) if one["kind"] == "array" else element + " by value"


class Compiler:
    def __init__(self, folder, source, out):
        import warp as wp
        import warp._src.build as warp_build
        self.wp, self.folder, self.source, self.out = wp, folder, source, out
        wp.config.kernel_cache_dir = os.path.abspath("cache")
        wp.config.enable_mathdx_gemm = False  # tile_matmul must say that it wants it
        wp.init()
        self.module, self.appended = None, ""
        self.build_cpu, warp_build.build_cpu = warp_build.build_cpu, self.build_with_host_kernel

    def build_with_host_kernel(self, obj_path, cpp_path, **options):
        with open(cpp_path, encoding="utf-8") as file:
            text = file.read()
        # Without Warp's own entries, which would be second callers of the kernel and keep it from being compiled into its loop.
        text, entries = re.subn(r'extern "C" \{\n.*?\n\} // extern C\n', "", text, flags=re.S)
        assert entries
        with open("kernel.cpp", "w", encoding="utf-8") as file:
            file.write(text + self.appended(cpp_path))
        self.build_cpu(obj_path, "kernel.cpp", **options)

    def load(self):
        """The source as a module, its folder first on the path, after all of Warp has been imported."""
        if self.module is None:
            sys.path.insert(0, self.folder)
            spec = importlib.util.spec_from_file_location("kbundle_source", os.path.join(self.folder, self.source))
            module = importlib.util.module_from_spec(spec)
            sys.modules["kbundle_source"] = module
            spec.loader.exec_module(module)
            self.module = module
        return self.module

    def kernel(self, name):
        module = self.load()
        found = getattr(module, name, None)
        known = sorted(k for k, v in vars(module).items() if isinstance(v, self.wp.Kernel))
        if found is None:
            raise Refused("%s has no kernel '%s'" % (self.source, name), "its @wp.kernel functions: " + (", ".join(known) or "none"),
                          kernel=True)
        if not isinstance(found, self.wp.Kernel):
            raise Refused("'%s' of %s is no @wp.kernel but %s" % (name, self.source, type(found).__name__),
                          "its @wp.kernel functions: " + (", ".join(known) or "none"), kernel=True)
        if found.is_generic:
            raise Refused("kernel '%s' is generic: a parameter has the type Any" % name,
                          "write a kernel for each dtype, name_f32 and name_f64, and the manifest's kernel = \"name_{T}\"", kernel=True)
        options = {**found.module.options, **found.options}
        for option, allowed in (("cluster_dim", 1), ("grid_stride", None), ("entry_point_abi", "warp")):
            if options.get(option) not in (None, allowed, True):
                raise Refused("kernel '%s' is declared with %s = %r, which kbundle does not launch" % (name, option, options[option]),
                              "leave the option out", kernel=True)
        return found

    def parameter(self, arg):
        """What a parameter takes, in the manifest's terms."""
        types, kind = self.wp._src.types, arg.type
        struct = isinstance(getattr(kind, "dtype", kind), self.wp._src.codegen.Struct)
        if types.is_array(kind) and type(kind).__name__ == "array":
            one = described(kind.dtype)
            if one and not struct:
                return {"kind": "array", "rank": kind.ndim, **one}
        elif one := (not types.is_array(kind) and not struct and described(kind)):
            return {"kind": "value", **one}
        what = "a struct" if struct else type(kind).__name__
        raise Refused("parameter '%s' is %s of Warp, which kbundle does not pass" % (arg.label, what),
                      "arrays of numbers, vectors, matrices and quaternions are passed, and these and numbers by value")

    def check_signature(self, kernel, request):
        parameters, passed = kernel.adj.args, request["arguments"]
        text = "%s(%s)" % (kernel.key, ", ".join(arg.label for arg in parameters))
        if len(parameters) != len(passed):
            raise Refused("%s takes %d arguments, the manifest passes %d" % (text, len(parameters), len(passed)),
                          argument=min(len(parameters), len(passed)))
        for i, (arg, given) in enumerate(zip(parameters, passed)):
            try:
                wanted = self.parameter(arg)
            except Refused as refused:
                refused.at = {"argument": i}
                raise
            if any(wanted.get(key) != given.get(key) for key in ("kind", "rank", "scalar", "shape")):
                raise Refused("parameter '%s' of %s is %s, the manifest passes %s" % (arg.label, text, in_words(wanted), in_words(given)),
                              self.advice(arg, wanted, given), argument=i)

    def advice(self, arg, wanted, given):
        if wanted["kind"] != given["kind"]:
            return "an array is a tensor's name, a value as in f32(E)"
        dtype = getattr(arg.type, "dtype", arg.type)
        name = getattr(dtype, "__name__", "")
        return "say what the elements are, as in %s(x)" % name if wanted["shape"] and name[:3] in ("vec", "mat", "qua") else ""

    def check_adjoints(self, kernel, text, request):
        for i, (arg, given) in enumerate(zip(kernel.adj.args, request["arguments"])):
            if given.get("adjoint") == "read" and not text.only_reads_adjoint(arg.label):
                raise Refused("the adjoint of '%s' is an operand, and Warp writes to it: it adds what flows to '%s', and clears what "
                              "was overwritten" % (arg.label, arg.label), "copy it into a result or a region first, and pass that", adjoint=i)
            if given.get("own_adjoint") and text.reads(arg.label):
                raise Refused("the adjoint reads '%s', and the manifest passes its gradient there" % arg.label,
                              "pass what the forward kernel had", argument=i)

    def check_text(self, kernel, text, request):
        dims = kernel.adj.kernel_dim
        if dims != request["dims"]:
            raise Refused("kernel '%s' asks wp.tid() for %d indices, `dim` has %d" % (kernel.key, dims, request["dims"]), dim=True)
        if "tile_matmul(" in text.source and kernel.module.options.get("enable_mathdx_gemm") is not False:
            raise Refused("kernel '%s' multiplies tiles with libmathdx: minutes to compile, megabytes of symbols" % kernel.key,
                          "wp.set_module_options({\"enable_mathdx_gemm\": False}) takes Warp's own loop; for matrix products of any "
                          "size there is provider = \"cublaslt\"", kernel=True)
        why = text.must_run_at_once() if request["parts"] else ""
        if why:
            raise Refused("kernel '%s' has no parts: it %s" % (kernel.key, why), "leave out `grain`: it then runs at once", grain=True)
        if request["adjoint"]:
            self.check_adjoints(kernel, text, request)

    def compile(self, request):
        kernel = self.kernel(request["kernel"])
        self.check_signature(kernel, request)
        if request["adjoint"] and {**kernel.module.options, **kernel.options}.get("enable_backward") is False:
            raise Refused("kernel '%s' has no adjoint: it is declared with enable_backward = False" % kernel.key, kernel=True)
        host = request["target"].startswith("x86")
        symbol = "kb_%s%s" % (kernel.key, "_adjoint" if request["adjoint"] else "")
        name = kernel.key

        def appended(path):
            with open(path, encoding="utf-8") as file:
                text = Text(file.read(), name + "_cpu_kernel_forward")
            self.check_text(kernel, text, request)
            return host_kernel(name, symbol, kernel, request["adjoint"], text.tiles())

        self.appended = appended
        shutil.rmtree(BUILD, ignore_errors=True)
        with OneKernel(self.wp, kernel, request):
            how = {"device": "cpu"} if host else {"arch": request["arch"], "use_ptx": False}
            made, = self.wp.compile_aot_module(kernel.module, module_dir=BUILD, strip_hash=True, **how)
            if not host:
                entry = name + "_cuda_kernel_forward"
                with open(next(made.parent.glob("*.cu")), encoding="utf-8") as file:
                    self.check_text(kernel, Text(file.read(), entry), request)
                symbol = "%s_cuda_kernel_%s" % (name, "backward" if request["adjoint"] else "forward")
        shared = 0
        for meta in made.parent.glob("*.meta"):
            shared = json.loads(meta.read_text()).get(symbol + "_smem_bytes", 0)
        shutil.copyfile(made, self.out)
        return {"symbol": symbol, "shared": shared, "threads": request.get("block_dim", 1)}

    def describe(self, error):
        """The part of a traceback that is about the user's files, and what Warp says of it."""
        last = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith(self.folder):
                last = "%s:%d: in %s: " % (os.path.relpath(frame.filename, self.folder), frame.lineno, frame.name)
        if isinstance(error, SyntaxError) and error.filename:
            last = "%s:%s:%s: " % (os.path.basename(error.filename), error.lineno, error.offset)
        said = error.args[0] if isinstance(error, KeyError) and error.args else error
        return ("%s%s: %s" % (last, type(error).__name__, said)).replace(self.folder + os.sep, "")

    def answer(self, request):
        try:
            return {"ok": True, **self.compile(request)}
        except Refused as refused:
            return {"ok": False, "error": str(refused), "note": refused.note, "at": refused.at}
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # whatever a user's module or Warp throws
            return {"ok": False, "error": self.describe(error), "note": "", "at": {}}


class OneKernel:
    """While it is entered, the kernel's module has no other kernel, and is compiled as a request wants it."""

    def __init__(self, wp, kernel, request):
        self.wp, self.kernel, self.module = wp, kernel, kernel.module
        host = request["target"].startswith("x86")
        self.options = {"enable_backward": request["adjoint"], "block_dim": request.get("block_dim", 1), "mode": "release", "lineinfo": False,
                        "cpu_compiler_flags": "-target-cpu " + request["target"] if host else "", "default_grid_stride": True}
        self.suffix = request["target"][-1] if request["target"][-1] in "af" else None

    def swap(self):
        module, config = self.module, self.wp.config
        self.kernels, module.kernels = module.kernels, self.kernels
        self.live, module._live_kernels = module._live_kernels, self.live
        self.options, module.options = module.options, self.options
        self.suffix, config.cuda_arch_suffix = config.cuda_arch_suffix, self.suffix
        module.mark_modified()

    def __enter__(self):
        import weakref
        self.kernels, self.live = {self.kernel.key: self.kernel}, weakref.WeakSet([self.kernel])
        self.options = {**self.module.options, **self.options}
        self.own = self.kernel.options.pop("enable_backward", None)
        self.swap()

    def __exit__(self, *error):
        self.swap()
        if self.own is not None:
            self.kernel.options["enable_backward"] = self.own


class Log:
    """What is printed while it is entered, by compilers too, as `text`."""

    def __enter__(self):
        sys.stdout.flush()
        self.kept = [os.dup(1), os.dup(2)]
        self.file = open("log", "w+b")
        for number in (1, 2):
            os.dup2(self.file.fileno(), number)
        return self

    def __exit__(self, *error):
        sys.stdout.flush()
        for number, kept in zip((1, 2), self.kept):
            os.dup2(kept, number)
            os.close(kept)
        self.file.seek(0)
        self.text = self.file.read().decode(errors="replace")
        self.file.close()


def without_places(text, folder):
    for place in (folder, os.getcwd()):
        text = text.replace(place + os.sep, "")
    return "".join(line for line in text.splitlines(True) if "precompiled header" not in line)


def serve(folder, source, out):
    with os.fdopen(3, encoding="utf-8") as requests, os.fdopen(4, "w", encoding="utf-8") as answers:
        with Log():
            compiler = Compiler(folder, source, out)
        for line in requests:
            with Log() as log:
                reply = compiler.answer(json.loads(line))
            # What a compiler behind Warp said; of its own errors Warp says all in the exception.
            reply["log"] = "" if reply["ok"] or "build failed" not in reply["error"] else without_places(log.text, folder)
            answers.write(json.dumps(reply) + "\n")
            answers.flush()


if sys.argv[1] == "probe":
    probe()
else:
    serve(*sys.argv[2:5])
