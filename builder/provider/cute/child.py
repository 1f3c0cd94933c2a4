"""Runs inside the Python that has CuTe DSL: compiles what one step of a manifest asks for, and learns its launches.

`python -c THIS probe` prints what is installed; `python -c THIS serve FOLDER SOURCE OUT` answers one JSON line of its
descriptor 3 with one on its descriptor 4, and leaves the cubin at OUT. Whatever is printed is the log.
"""
import contextlib
import functools
import gc
import importlib.metadata
import importlib.util
import inspect
import io
import json
import os
import shutil
import signal
import sys
import traceback

FUNCTION = "kbundle"
HOST, CUBIN, PACKAGES = "host.o", "kernels.cubin", "packages.json"  # of what is compiled
PACKAGE = "nvidia-cutlass-dsl"
PARTS = (PACKAGE, "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-core", "nvidia-cutlass-dsl-libs-cu13", "apache-tvm-ffi")


def digest_of(distribution):
    """RECORD holds a digest of every file that was installed."""
    import hashlib
    rows = sorted(row for row in (distribution.read_text("RECORD") or "").splitlines()
                  if not row.rsplit(",", 2)[0].endswith(".pyc") and "INSTALLER" not in row and "REQUESTED" not in row
                  and not row.startswith("../"))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def license_of(distribution):
    """What its metadata say, or the first line of its licence."""
    metadata = distribution.metadata
    text = metadata.get("License-Expression") or metadata.get("License") or ""
    files = [file for file in distribution.files or () if "licen" in file.name.lower()]
    if not text and files:
        text = files[0].locate().read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:60] if lines else "unknown"


def probe():
    found = {"python": "%d.%d.%d" % sys.version_info[:3], "version": "", "record": "", "files": []}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["record"] = " ".join(digest_of(importlib.metadata.distribution(name)) for name in PARTS)
        found["version"] = importlib.metadata.version(PACKAGE)
    print(json.dumps(found))


@functools.cache
def distributions_of_modules():
    """{top module: [distribution]}, which costs half a second: what serves asks once, and forks."""
    return importlib.metadata.packages_distributions()


def packages_used(before):
    """[name, version, licence] of the compiler and of what a source imported from installed packages."""
    fresh = {name.split(".")[0] for name in set(sys.modules) - before if sys.modules[name] is not None}
    used = {PACKAGE}
    for module, names in distributions_of_modules().items():
        if module in fresh:
            used.update(names)
    return sorted([name, importlib.metadata.version(name), license_of(importlib.metadata.distribution(name))] for name in used)


class Refused(Exception):
    """The source and the manifest do not go together, or a launch cannot be learned."""

    def __init__(self, message, note="", problem=None):
        super().__init__(message)
        self.note, self.problem = note, problem


class Tensor:
    """What a function gets for a tensor of the manifest; among what it returns, the tensor itself. Under which name the manifest has it is not
    for it to know: what is compiled serves every step that passes the like.

    dtype (a type of cutlass), shape and strides in elements: a number where every problem has the same, else None.
    """

    def __init__(self, index, dtype, shape, strides):
        self.index, self.dtype_name, self.shape, self.strides = index, dtype, tuple(shape), tuple(strides)
        self.align, self.divisible, self.dynamic = None, 1, ()

    @property
    def dtype(self):
        import cutlass
        return getattr(cutlass, {"f16": "Float16", "bf16": "BFloat16", "f32": "Float32", "f64": "Float64", "i8": "Int8",
                                 "i16": "Int16", "i32": "Int32", "i64": "Int64", "u8": "Uint8", "u16": "Uint16",
                                 "u32": "Uint32", "u64": "Uint64", "bool": "Boolean", "e4m3": "Float8E4M3FN",
                                 "e5m2": "Float8E5M2", "e8m0": "Float8E8M0FNU"}[self.dtype_name])

    @property
    def rank(self):
        return len(self.shape)

    def like(self, align=None, divisible=1, dynamic=()):
        """The same tensor, of which the kernel may believe more or less.

        align: of its address, in bytes; divisible: what all strides but the innermost are multiples of, in elements;
        dynamic: axes whose size the kernel is not to know although it is fixed.
        """
        made = Tensor(self.index, self.dtype_name, self.shape, self.strides)
        made.align, made.divisible, made.dynamic = align, divisible, tuple(dynamic)
        return made

    def fake(self):
        from cutlass import cute
        from cutlass.cute.runtime import make_fake_tensor
        shape = tuple(cute.sym_int32() if size is None or axis in self.dynamic else size for axis, size in enumerate(self.shape))
        strides = tuple(cute.sym_int64(divisibility=self.divisible) if step is None else step for step in self.strides)
        align = {} if self.align is None else {"assumed_align": self.align}
        return make_fake_tensor(self.dtype, shape, strides, **align)


class Scalar:
    """What a function gets for a number that the manifest passes."""

    def __init__(self, index, type_):
        self.index, self.type = index, type_

    def fake(self):
        import cutlass
        name = {"f32": "Float32", "f64": "Float64", "i32": "Int32", "i64": "Int64", "u32": "Uint32", "u64": "Uint64",
                "bool": "Boolean"}[self.type]
        return getattr(cutlass, name)(1)


def replaced(value, change, kinds=(Tensor, Scalar)):
    """The same nesting of tuples, with `change` of every tensor and scalar."""
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[replaced(one, change, kinds) for one in value])
    if isinstance(value, (tuple, list)):
        return type(value)(replaced(one, change, kinds) for one in value)
    return value


def at_launch(kernel, arguments):
    """Those that are passed when it is called: what is annotated Constexpr was used up when it was compiled."""
    function = kernel if inspect.isroutine(kernel) or inspect.isfunction(kernel) else type(kernel).__call__
    parameters = list(inspect.signature(inspect.unwrap(function)).parameters.values())
    if function is not kernel:
        parameters = parameters[1:]  # self
    return [one for one, parameter in zip(arguments, parameters) if "Constexpr" not in str(parameter.annotation)]


class Source:
    """An author's module, imported once for all that is compiled of it."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.module, self.failure, self.log = None, None, io.StringIO()
        self.before = set()
        with contextlib.redirect_stdout(self.log), contextlib.redirect_stderr(self.log):
            try:
                self.load()
            except Exception as error:  # told by whoever asks for a function
                self.failure = error

    def load(self):
        import tvm_ffi  # noqa: F401  before a source can stand anything in for what it looks for
        import cutlass.cute  # noqa: F401
        self.before = set(sys.modules)
        sys.path.insert(0, self.folder)
        spec = importlib.util.spec_from_file_location("kbundle_source", os.path.join(self.folder, self.name))
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["kbundle_source"] = self.module
        spec.loader.exec_module(self.module)

    def function(self, name):
        if self.failure is not None:
            raise self.failure
        function = getattr(self.module, name, None)
        if inspect.isfunction(function):
            return function
        known = sorted(k for k, v in vars(self.module).items() if inspect.isfunction(v) and v.__module__ == "kbundle_source")
        raise Refused("%s has no function '%s'" % (self.name, name), "it has " + (", ".join(known) or "none"))


class Child:
    def __init__(self, source, out, request):
        self.source, self.out, self.request = source, out, request
        self.folder = os.path.dirname(out)
        self.at = None  # the problem that is being recorded

    def inputs(self):
        for index, one in enumerate(self.request["arguments"]):
            if one is None:
                yield None
            elif "type" in one:
                yield Scalar(index, one["type"])
            else:
                yield Tensor(index, one["dtype"], one["shape"], one["strides"])

    def ask(self):
        """(what is to be compiled, its arguments, options)"""
        function = self.source.function(self.request["function"])
        given = list(self.inputs())
        named = {**self.request["tunables"], "target": self.request["target"]["name"]}
        try:
            bound = inspect.signature(function).bind(*given, **named)
        except TypeError as error:
            raise Refused("'%s' cannot be called with what the manifest passes: %s" % (self.request["function"], error),
                          "it gets the %d `args` in order, and by name: %s" % (len(given), ", ".join(named))) from None
        made = function(*bound.args, **bound.kwargs)
        if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[1], (tuple, list)):
            raise Refused("'%s' returned %s" % (self.request["function"], type(made).__name__),
                          "it returns what cute.compile is to compile and a tuple of its arguments, and maybe options")
        return made if len(made) == 3 else (*made, "")

    def compile(self, kernel, arguments, options):
        """A folder with what the compiler made: once for all units of a build that ask it for the same, and for every search of one unit."""
        kept = self.request["kept"]
        if os.path.isdir(kept):
            return kept
        made = os.path.join(self.folder, "made")
        shutil.rmtree(made, ignore_errors=True)
        os.mkdir(made)
        self.compile_into(made, kernel, arguments, options)
        try:
            os.rename(made, kept)
            return kept
        except OSError:  # another unit was quicker, with the same, or nothing can be kept
            return made

    def compile_into(self, folder, kernel, arguments, options):
        from cutlass import cute
        from cutlass.cute.runtime import make_fake_stream
        fakes = [replaced(one, lambda leaf: leaf.fake()) for one in arguments]
        compiled = cute.compile(kernel, *fakes, make_fake_stream(use_tvm_ffi_env_stream=True), no_jit_engine=True,  # it is exported
                                options=" ".join(["--enable-tvm-ffi --keep-cubin --gpu-arch", self.request["target"]["name"], options]))
        compiled.export_to_c(os.path.join(folder, HOST), function_name=FUNCTION)
        with open(os.path.join(folder, CUBIN), "wb") as file:
            file.write(compiled.artifacts.CUBIN)
        with open(os.path.join(folder, PACKAGES), "w", encoding="utf-8") as file:
            json.dump(packages_used(self.source.before), file)

    def placed(self, leaf, problem, where):
        import recorder
        if not isinstance(leaf, (Tensor, Scalar)):
            return leaf.value
        value = problem["arguments"][leaf.index]
        if isinstance(leaf, Scalar):
            return float(value) if leaf.type in ("f32", "f64") else bool(value) if leaf.type == "bool" else value
        return recorder.Placed(value[where], leaf.dtype_name, value["shape"], value["strides"])

    def record(self, maker, arguments):
        import cutlass
        import recorder
        kinds = (Tensor, Scalar, cutlass.Numeric)  # a number of CuTe DSL is passed as Python's
        target, recordings = self.request["target"], []
        for number, problem in enumerate(self.request["problems"]):
            self.at = number
            maker.device(target["major"], target["minor"], problem["sm_count"], target["shared"])
            here, there = ([replaced(one, lambda leaf, where=where: self.placed(leaf, problem, where), kinds) for one in arguments]
                           for where in ("address", "elsewhere"))
            recordings.append(recorder.Recording(maker, here, there))
        self.at = None
        return recordings

    def infer(self, maker, recordings):
        import template
        request, problems = self.request, [self.request["problems"][i] for i in self.request["infer"]]
        atoms = {text: [one["atoms"][i] for one in problems] for i, text in enumerate(request["atoms"])}
        floats = {name: [one["floats"][i] for one in problems] for i, name in enumerate(request["floats"])}
        tensors = {name: ([one["bases"][i] for one in problems], [one["elsewhere"][i] for one in problems], size)
                   for i, (name, size) in enumerate(request["tensors"])}
        spans = [([one["arguments"][i] and one["arguments"][i]["address"] for one in problems], text, atoms[text])
                 for i, text in enumerate(request["spans"]) if text in atoms]
        known = template.Problems([recordings[i] for i in request["infer"]], atoms, [one["sm_count"] for one in problems], tensors, floats, spans)
        return template.template(known, maker.param_bytes)

    def learn(self):
        import elf
        import recorder
        kernel, arguments, options = self.ask()
        made = self.compile(kernel, arguments, options)
        shutil.copyfile(os.path.join(made, CUBIN), self.out)
        with open(self.out, "rb") as file:
            cubin = file.read()
        with open(os.path.join(made, PACKAGES), encoding="utf-8") as file:
            packages = json.load(file)
        maker = recorder.Recorder(self.folder, self.request["compiler"], os.path.join(made, HOST), cubin, FUNCTION)
        recordings = self.record(maker, at_launch(kernel, arguments))
        if not recordings[0].launches:
            raise Refused("'%s' launches nothing" % self.request["function"])
        order = [one.kernel for one in recordings[0].launches]
        if any([one.kernel for one in recording.launches] != order for recording in recordings):
            raise Refused("which kernels '%s' launches depends on the problem" % self.request["function"],
                          "a tunable and a `when` say which problems a variant's point takes")
        used = elf.resources(cubin)
        kernels = [{"symbol": maker.symbols[one.kernel], **used[maker.symbols[one.kernel]]} for one in recordings[0].launches]
        inferred = set(self.request["infer"])
        return {"launches": self.infer(maker, recordings), "kernels": kernels, "packages": packages,
                "recorded": [[self.recorded(recording, i) for i in range(len(recording.launches))]
                             for number, recording in enumerate(recordings) if number not in inferred]}

    @staticmethod
    def recorded(recording, number):
        one, data = recording.launches[number], bytearray(recording.launches[number].params)
        for at in recording.unwritten[number]:
            data[at] = 0
        return {"grid": one.grid, "block": one.block, "cluster": one.cluster, "shared": one.shared,
                "programmatic": bool(one.programmatic), "params": data.hex()}

    def describe(self, error):
        """The part of a traceback that is about the author's files, and what was said."""
        last = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith(self.source.folder):
                last = "%s:%d: in %s: " % (os.path.relpath(frame.filename, self.source.folder), frame.lineno, frame.name)
        if isinstance(error, SyntaxError) and error.filename:
            last = "%s:%s:%s: " % (os.path.basename(error.filename), error.lineno, error.offset)
        return ("%s%s: %s" % (last, type(error).__name__, error)).replace(self.source.folder + os.sep, "")

    def answer(self):
        import recorder
        import template
        log, note = self.source.log, ""
        try:
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                return {"ok": True, "log": "", **self.learn()}
        except Refused as refused:
            text, note = str(refused), refused.note
        except recorder.CannotRecord as refused:
            text = str(refused)
        except template.CannotExplain as refused:
            text = str(refused)
            note = "name what it is by a `let` of the variant, which the search for expressions takes as it takes sizes"
        except Exception as error:  # whatever an author's module or CuTe DSL throws
            text = self.describe(error)
        return {"ok": False, "error": text, "note": note, "at": {} if self.at is None else {"problem": self.at}, "log": log.getvalue()[-4000:]}


def answer_one(source, out, line, answers):
    """In a process of its own, since names of kernels count what a process compiled before; how it dies is how this one does."""
    import rewrites
    reading, writing = os.pipe()
    made = os.fork()
    if made == 0:
        names = rewrites.noted() if source.failure is None else []
        answers.write(json.dumps(Child(source, out, json.loads(line)).answer(), sort_keys=True) + "\n")
        with os.fdopen(writing, "w", encoding="utf-8") as told:
            json.dump(names, told)
        for file in (answers, sys.stdout, sys.stderr):
            file.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as told:
        names = told.read()
    _, status = os.waitpid(made, 0)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    if status != 0:
        os._exit(os.WEXITSTATUS(status))
    rewrites.repeat(json.loads(names))


def serve(folder, name, out):
    with os.fdopen(3, encoding="utf-8") as requests, os.fdopen(4, "w", encoding="utf-8") as answers:
        source = None
        for line in requests:
            if source is None:
                source = Source(folder, name)
                distributions_of_modules()
                gc.collect()
                gc.freeze()  # else every child's first collection walks all of this, and so copies it
            answer_one(source, out, line, answers)


if sys.argv[1] == "probe":
    probe()
else:
    serve(*sys.argv[2:5])
