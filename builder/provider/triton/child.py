"""Runs inside the Python that has Triton: compiles one kernel per line of its descriptor 3.

`python -I -c THIS probe` prints what is installed; `python -I -c THIS serve FOLDER SOURCE OUT` answers one JSON
line with one JSON line, on its descriptor 4. Whatever is printed is the log.
"""
import contextlib
import importlib.metadata
import importlib.util
import io
import json
import os
import sys
import traceback


def probe():
    import hashlib
    found = {"python": "%d.%d.%d" % sys.version_info[:3], "version": "", "record": "", "files": []}
    try:
        distribution = importlib.metadata.distribution("triton")
        found["version"] = distribution.version
        # RECORD holds a digest of every file that was installed.
        record = distribution.read_text("RECORD") or ""
        rows = sorted(row for row in record.splitlines() if not row.rsplit(",", 2)[0].endswith(".pyc")
                      and "INSTALLER" not in row and "REQUESTED" not in row and not row.startswith("../"))
        found["record"] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        for name in ("ptxas", "ptxas-blackwell"):
            path = distribution.locate_file("triton/backends/nvidia/bin/" + name)
            if os.path.exists(path):
                found["files"].append(str(path))
    except importlib.metadata.PackageNotFoundError:
        pass
    print(json.dumps(found))


class Refused(Exception):
    """The source and the manifest do not go together; `at` says where in the manifest."""

    def __init__(self, message, note="", **at):
        super().__init__(message)
        self.note, self.at = note, at


class Compiler:
    def __init__(self, folder, source, out):
        import triton
        import triton.language as tl
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from triton.runtime.jit import JITFunction
        self.triton, self.tl, self.target, self.ast, self.jit = triton, tl, GPUTarget, ASTSource, JITFunction
        self.folder, self.source, self.out = folder, source, out
        self.module = None

    def load(self):
        """The source as a module, its folder first on the path, after all of Triton has been imported."""
        if self.module is None:
            sys.path.insert(0, self.folder)
            spec = importlib.util.spec_from_file_location("kbundle_source", os.path.join(self.folder, self.source))
            module = importlib.util.module_from_spec(spec)
            sys.modules["kbundle_source"] = module
            spec.loader.exec_module(module)
            self.module = module
        return self.module

    def function(self, name):
        module = self.load()
        found = getattr(module, name, None)
        known = sorted(k for k, v in vars(module).items() if isinstance(v, self.jit))
        if found is None:
            raise Refused("%s has no function '%s'" % (self.source, name),
                          "its @triton.jit functions: " + (", ".join(known) or "none"), kernel=True)
        if not isinstance(found, self.jit):
            raise Refused("'%s' of %s is no @triton.jit function but %s" % (name, self.source, type(found).__name__),
                          "the decorator next to the function must be @triton.jit and the only one; configurations "
                          "are tunables of the manifest, heuristics are constexprs", kernel=True)
        return found

    def dtype(self, name):
        known = {"i1": "int1", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32",
                 "i32": "int32", "u64": "uint64", "i64": "int64", "fp16": "float16", "bf16": "bfloat16",
                 "fp32": "float32", "fp64": "float64", "fp8e4nv": "float8e4nv", "fp8e5": "float8e5"}
        return getattr(self.tl, known[name])

    def signature(self, function, request):
        """What ASTSource wants, or where function and manifest part."""
        names = [parameter.name for parameter in function.params]
        given = request["constexprs"]
        text = "%s(%s)" % (function.__name__, ", ".join(names))
        for name in given:
            if name not in names:
                raise Refused("constexpr '%s' is no parameter of %s" % (name, text), constexpr=name)
        constexprs = {}
        for parameter in function.params:
            if parameter.name in given:
                value = given[parameter.name]
                constexprs[parameter.name] = self.dtype(value["dtype"]) if isinstance(value, dict) else value
            elif parameter.is_constexpr and parameter.has_default:
                constexprs[parameter.name] = parameter.default
            elif parameter.is_constexpr:
                raise Refused("parameter '%s' of %s is a tl.constexpr without a value" % (parameter.name, text),
                              "give it one in `constexprs`", kernel=True)
        others = [name for name in names if name not in constexprs]
        passed = request["parameters"]
        if len(others) != len(passed):
            raise Refused("%s takes %d arguments besides its constexprs, the manifest passes %d"
                          % (text, len(others), len(passed)),
                          "it takes: %s; what is fixed at build belongs into `constexprs`"
                          % (", ".join(others) or "none"), argument=min(len(others), len(passed)))
        types, attributes = {}, {}
        for i, (name, argument) in enumerate(zip(others, passed)):
            types[name] = argument["type"]
            if argument["equal_to_1"]:
                constexprs[name] = 1
            elif argument["divisible_by_16"]:
                attributes[(names.index(name),)] = [["tt.divisibility", 16]]
        types.update((name, "constexpr") for name in constexprs)
        ordered = {name: types[name] for name in names}
        return ordered, {(names.index(name),): value for name, value in constexprs.items()}, attributes

    def compile(self, request):
        function = self.function(request["function"])
        types, constexprs, attributes = self.signature(function, request)
        source = self.ast(fn=function, signature=types, constexprs=constexprs, attrs=attributes)
        target = self.target("cuda", request["capability"], 32)
        kernel = self.triton.compile(source, target=target, options=request["options"])
        metadata = kernel.metadata
        for what in ("global_scratch_size", "profile_scratch_size"):
            if getattr(metadata, what, 0):
                raise Refused("'%s' wants %s = %d bytes, which kbundle does not give"
                              % (request["function"], what, getattr(metadata, what)),
                              "tensor descriptors that are made inside the kernel need it: use pointers", kernel=True)
        if metadata.num_ctas != 1 or metadata.launch_cooperative_grid:
            raise Refused("'%s' wants a cluster or a cooperative launch" % request["function"], kernel=True)
        with open(self.out, "wb") as file:
            file.write(kernel.asm["cubin"])
        return {"symbol": metadata.name, "threads": 32 * metadata.num_warps, "shared": metadata.shared}

    def describe(self, error):
        """The part of a traceback that is about the user's files, and what Triton says of it."""
        lines, last = [], None
        seen = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            for frame in traceback.extract_tb(error.__traceback__):
                if frame.filename.startswith(self.folder):
                    last = "%s:%d: in %s" % (os.path.relpath(frame.filename, self.folder), frame.lineno, frame.name)
            if isinstance(error, SyntaxError) and error.filename:
                last = "%s:%s:%s" % (os.path.basename(error.filename), error.lineno, error.offset)
            name = type(error).__name__
            where = self.place(error)
            lines.append("%s%s: %s" % (where or (last + ": " if last else ""), name, error))
            error = error.__cause__
        return "\n".join(lines).replace(self.folder + os.sep, "")

    def place(self, error):
        """file:line:col of a CompilationError, whose own line counts from the function's `def`."""
        node, source = getattr(error, "node", None), getattr(error, "src", None)
        if node is None or source is None or self.module is None:
            return ""
        for value in vars(self.module).values():
            if isinstance(value, self.jit) and value.src == source:
                decorators = [line.strip().startswith("def ") for line in value.raw_src].index(True)
                line = value.starting_line_number + decorators + node.lineno - 1
                return "%s:%d:%d: " % (self.source, line, node.col_offset + 1)
        return ""

    def answer(self, request):
        log = io.StringIO()
        try:
            with contextlib.redirect_stdout(log):
                reply = {"ok": True, **self.compile(request)}
        except Refused as refused:
            reply = {"ok": False, "error": str(refused), "note": refused.note, "at": refused.at}
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # whatever a user's module or Triton throws
            reply = {"ok": False, "error": self.describe(error), "note": "", "at": {}}
        said = log.getvalue()
        reply["log"] = said if reply["ok"] or "Repro command" in said else ""
        return reply


def serve(folder, source, out):
    compiler = Compiler(folder, source, out)
    with os.fdopen(3, encoding="utf-8") as requests, os.fdopen(4, "w", encoding="utf-8") as answers:
        for line in requests:
            answers.write(json.dumps(compiler.answer(json.loads(line))) + "\n")
            answers.flush()


if sys.argv[1] == "probe":
    probe()
else:
    serve(*sys.argv[2:5])
