"""Promise: kbundle_describe.h, read as a generator of bindings reads it, gives of every op, variant, problem and choice of a bundle exactly
what the JSON gives."""

import ctypes
import itertools
import json
import pathlib
import re

import pytest

from conformance import capi

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = [ROOT / "ffi/c/include/kbundle" / name for name in ("kbundle_c.h", "kbundle_describe.h")]
PLAIN = {"size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
         "uint64_t": ctypes.c_uint64, "double": ctypes.c_double, "uint8_t": ctypes.c_uint8, "char": ctypes.c_char, "void": None, "kb_allocator": None}
VMAP, TYPES = ["loop", "leading", "none"], [None, "bool", "int", "float", "dtype", "enum", "int[]", "float[]"]
CHOICES = [None, "exact", "nearest", "manifest order", "portable", "forced", "heuristic"]


def fields_of(body, known):
    """(name, ctypes' type) of each declaration: `const char *a, *b;`, `const kb_x* const* rows;`, `uint8_t sha256[32];`."""
    for declaration in filter(str.strip, body.split(";")):
        base, rest = re.fullmatch(r"\s*(?:const )?(\w+)\b(.*)", declaration, re.S).groups()
        for one in rest.split(","):
            name, length = re.search(r"(\w+)(?:\[(\w+)\])?\s*$", one).groups()
            kind = known[base]
            for _ in range(one.count("*")):
                kind = ctypes.c_char_p if kind is ctypes.c_char else ctypes.POINTER(kind)
            yield name, kind * int(length) if length else kind


@pytest.fixture(scope="module")
def structs():
    known = dict(PLAIN)
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S).replace("KB_MOST_RANK", "16")
        for body, name in re.findall(r"typedef struct \{([^()]*?)\} (\w+);", text):
            known[name] = type(name, (ctypes.Structure,), {"_fields_": list(fields_of(body, known))})
    return known


@pytest.fixture(scope="module")
def bundle():
    path = ROOT / "build/kernels.kb"
    assert path.exists(), "run `build/release/kbundle build kernels -o build/kernels.kb`"
    opened = capi.Bundle(path, name="c structs in Python")
    yield opened
    opened.close()


class Made:
    """What a *_make function gave, freed at the end."""

    def __init__(self, structs, name, *arguments):
        self.out, self.name = ctypes.POINTER(structs[name])(), name
        make = getattr(capi.LIB, f"{name}_make")
        make.restype = ctypes.c_void_p
        capi.check(make(*arguments, ctypes.byref(self.out)))

    def __enter__(self):
        return self.out.contents

    def __exit__(self, *_):
        getattr(capi.LIB, f"{self.name}_free")(self.out)


def text(value):
    return value and value.decode()


def texts(values, count):
    return [text(values[i]) for i in range(count)]


def rows(values, count):
    found = [values[i].contents for i in range(count)]
    assert all(row.size == ctypes.sizeof(row) for row in found), "the library's struct is not the header's"
    return found


def dtypes(values, count):
    return [capi.DTYPES[values[i] - 1] for i in range(count)]


def value_of(given):
    return {0: lambda: bool(given.integer), 1: lambda: given.integer, 2: lambda: given.number, 3: lambda: text(given.text),
            4: lambda: given.integers[:given.count], 5: lambda: given.numbers[:given.count]}[given.kind]()


def number(value):
    """As JSON has it: what it does not know is a text there."""
    return value if not isinstance(value, str) else float(value)


def tensor_of(tensor, *more):
    return {"name": text(tensor.name), "shape": text(tensor.shape), **{key: read(tensor) for key, read in more},
            "ellipsis": {"name": text(tensor.ellipsis), "axis": tensor.ellipsis_axis} if tensor.ellipsis else None}


def interface_of(op):
    found = {
        "name": text(op.name), "summary": text(op.summary), "interface": f"{op.interface_hash:016x}", "vmap": VMAP[op.vmap],
        "coordinates": texts(op.coordinates, op.coordinate_count),
        "types": [{"name": text(one.name), "dtypes": dtypes(one.dtypes, one.dtype_count), "attribute": text(one.attribute)}
                  for one in rows(op.types, op.type_count)],
        "operands": [tensor_of(one, ("optional", lambda t: bool(t.optional)), ("strided", lambda t: bool(t.strided)))
                     for one in rows(op.operands, op.operand_count)],
        "results": [tensor_of(one, ("alias", lambda t: t.alias), ("conditional", lambda t: bool(t.conditional)))
                    for one in rows(op.results, op.result_count)],
        "attributes": [{"name": text(one.name), "type": TYPES[one.type], "default": value_of(one.value[0]) if one.value else None,
                        "required": not one.value, "choices": texts(one.choices, one.choice_count), "max_len": one.most_elements}
                       for one in rows(op.attributes, op.attribute_count)],
        "tolerances": [{"result": one.result, "dtype": capi.DTYPES[one.dtype - 1] if one.dtype else None, "ulps": one.ulps,
                        "relative": one.relative} for one in rows(op.tolerances, op.tolerance_count)]}
    expressions = [{"attribute": text(one.attribute), "name": text(one.name), "text": text(one.text),
                    "scalars": texts(one.scalars, one.scalar_count),
                    "tensors": [{"name": name, "dims": dims} for name, dims in zip(texts(one.tensors, one.tensor_count),
                                                                                    texts(one.tensor_dims, one.tensor_count))]}
                   for one in rows(op.expressions, op.expression_count)]
    return {**found, **({"expressions": expressions} if expressions else {})}


def asked_by(spec):
    return ctypes.cast(spec, ctypes.POINTER(capi.Spec))


def problem_of(problem):
    spec = problem.spec
    operands = [spec.operands[i] for i in range(spec.operand_count)]
    return {"text": text(problem.text),
            "operands": [{"present": bool(one.present), "dtype": capi.DTYPES[one.dtype - 1] if one.dtype else "invalid",
                          "dims": one.dims[:one.rank]} for one in operands],
            "attributes": {text(spec.attributes[i].name): value_of(spec.attributes[i]) for i in range(spec.attribute_count)}}


def kernel_of(kernel):
    if not kernel.symbol:
        return {"symbol": None, "blob": -1}
    found = {"symbol": text(kernel.symbol), **{key: getattr(kernel, key) for key in ("blob", "registers", "spill_bytes", "static_shared")}}
    return {**found, **({"dynamic_shared": kernel.dynamic_shared, "threads": kernel.threads} if kernel.threads else {})}


def variant_of(op, variant):
    names = [text(one.name) for one in rows(op.types, op.type_count)]
    return {"id": text(variant.id), "target": text(variant.target), "template": text(variant.name), "provider": text(variant.provider),
            "rank": variant.rank, "ran_on": texts(variant.ran_on, variant.ran_on_count),
            "kernels": [kernel_of(one) for one in rows(variant.kernels, variant.kernel_count)],
            "types": dict(zip(names, dtypes(variant.types, variant.type_count), strict=True)),
            "deterministic": text(variant.deterministic), "batch_invariant": text(variant.batch_invariant),
            "tunables": dict(zip(texts(variant.tunables, variant.tunable_count), variant.tunable_values[:variant.tunable_count]))}


def without(found, *keys):
    return {key: value for key, value in found.items() if key not in keys}


def test_every_op_variant_and_blob_is_what_the_json_says(structs, bundle):
    said = bundle.describe()
    with Made(structs, "kb_bundle_info", bundle.handle, None, 1) as info:
        assert {"name": text(info.name), "path": text(info.path), "content_id": text(info.content_id), "file_bytes": info.file_bytes,
                "provenance": dict(zip(texts(info.provenance_keys, info.provenance_count), texts(info.provenance_values, info.provenance_count))),
                "targets": texts(info.targets, info.target_count), "devices": texts(info.devices, info.device_count),
                "parts": [{"path": text(one.path), "content_id": text(one.content_id), "file_bytes": one.file_bytes,
                           "targets": texts(one.targets, one.target_count)}
                          for one in rows(info.parts, info.part_count)],
                "absent": [{"target": text(one.target), "how": text(one.how)} for one in rows(info.absent, info.absent_count)]
                } == without(said, "ops", "blobs")
        for op, wanted in zip(rows(info.ops, info.op_count), said["ops"], strict=True):
            assert interface_of(op) == without(wanted, "problems", "variants")
            assert [problem_of(one) for one in rows(op.problems, op.problem_count)] == wanted["problems"]
            for variant, row in zip(rows(op.variants, op.variant_count), wanted["variants"], strict=True):
                assert variant_of(op, variant) == without(row, "registers", "blob")
        assert [{"sha256": bytes(one.sha256).hex(), "format": text(one.format), "part": one.part, "offset": one.offset,
                 "stored_bytes": one.stored_bytes, "bytes": one.bytes, "base": one.base}
                for one in rows(info.blobs, info.blob_count)] == said["blobs"]


def test_a_listed_problem_can_be_asked_as_it_stands(structs, bundle):
    """Its spec is a request; what it gets, and why, is what the JSON says of it."""
    asked = 0
    with Made(structs, "kb_bundle_info", bundle.handle, None, 1) as info:
        problems = [(op.name, problem) for op in rows(info.ops, info.op_count)
                    for problem in itertools.islice(rows(op.problems, op.problem_count), 2)]
        for name, problem in problems:
            spec = ctypes.byref(problem.spec)
            for kind, target in ((capi.CUDA, b"sm_90a"), (capi.HOST, b"x86-64-v3")):
                out = ctypes.c_void_p()
                capi.check(capi.LIB.kb_explain_modes(bundle.handle, name, asked_by(spec), kind, target, 0, ctypes.byref(out)))
                said = json.loads(capi.take_string(out))
                with Made(structs, "kb_explanation", bundle.handle, name, spec, kind, target, ctypes.c_uint64(0)) as why:
                    check_explanation(why, said)
                asked += 1
            check_inference(structs, bundle, name, spec)
    assert asked > 20


def check_explanation(why, said):
    assert (text(why.problem), text(why.target)) == (said["problem"], said["target"])
    found = {"chosen": text(why.chosen), "part": text(why.part), "choice": CHOICES[why.choice], "needs": text(why.needs), "error": text(why.error)}
    assert found == {key: said.get(key) for key in found}
    assert why.workspace_bytes == (-1 if said["workspace_bytes"] is None else said["workspace_bytes"])
    assert [{"id": text(one.id), "legal": bool(one.legal), "reason": text(one.reason)}
            for one in rows(why.candidates, why.candidate_count)] == said["candidates"]
    assert [{"target": text(one.target), "how": text(one.how)} for one in rows(why.absent, why.absent_count)] == said["absent"]
    assert bool(why.tuned) == (said["tuned"] is not None)
    if not why.tuned:
        return
    tuned = why.tuned.contents
    assert {"problem": text(tuned.problem), "device": text(tuned.device), "winner": text(tuned.winner), "default": text(tuned.base),
            "verdict": text(tuned.verdict), "reason": text(tuned.reason)} == without(said["tuned"], "times")
    for one, row in zip(rows(tuned.times, tuned.time_count), said["tuned"]["times"], strict=True):
        assert (text(one.id), [one.low_us, one.median_us, one.high_us], [one.ratio, one.band]) == (
            row["id"], [number(us) for us in row["us"]], [number(ratio) for ratio in row["versus_default"]])
        assert (bool(one.dropped), bool(one.failed)) == (row["dropped"], row["failed"])


def check_inference(structs, bundle, name, spec):
    for kind in (capi.CUDA, capi.HOST):
        out = ctypes.c_void_p()
        try:
            capi.check(capi.LIB.kb_infer(bundle.handle, name, asked_by(spec), kind, ctypes.byref(out)))
        except capi.KbError as error:
            assert error.code == 5, error  # no variant for this kind of device
            continue
        said = json.loads(capi.take_string(out))
        with Made(structs, "kb_inference", bundle.handle, name, spec, kind) as got:
            assert f"{got.interface_hash:016x}" == said["interface"] and got.workspace_bytes == said["workspace_bytes"]
            assert bool(got.empty) == said["empty"]
            results = [got.results[i] for i in range(got.result_count)]
            assert [(bool(one.present), one.dims[:one.rank]) for one in results] == [(one["present"], one["dims"]) for one in said["results"]]
            cuts = [{"operands": one.operand_dims[:one.operand_count], "results": one.result_dims[:one.result_count], "batch": bool(one.batch),
                     "sums": one.sums[:one.sum_count], "once": one.once[:one.once_count]} for one in rows(got.cuts, got.cut_count)]
            assert cuts == said["cuts"]


def test_statistics_are_those_of_the_json(structs, bundle):
    problem = capi.Problem("softmax.scaled_forward", [("f32", (3, 7))], {"scale": 0.5})
    plan = capi.Plan(bundle, problem, capi.HOST)
    said = capi.stats()
    with Made(structs, "kb_statistics") as statistics:
        assert [statistics.plans_made, statistics.plans_shared, statistics.objects_loaded] == [
            said["plans_made"], said["plans_shared"], said["objects_loaded"]]
        keys = ("bundle", "content_id", "op", "problem", "variant", "choice", "device", "reason")
        assert [{**{key: text(getattr(one, key)) for key in keys}, "count": one.count}
                for one in rows(statistics.chosen, statistics.chosen_count)] == said["chosen"]
    assert plan.variant in [row["variant"] for row in said["chosen"]]
