"""Problems to try an op on: the ones its manifest names, made small, plus odd sizes of every symbol.

Nothing is known about the op but its interface as the bundle tells it. Sizes are changed by whole
groups of equal values (so that Q == K or "mask batch = batch" survive) and one symbol at a time;
kb_infer then says which of the results are problems of the op at all.
"""

import functools
import json
import math
import re

from conformance import capi

SIZES = [1, 2, 3, 31, 32, 33, 48, 64, 100, 128, 256, 301, 1000, 1001, 1024, 1280, 2001, 2048, 2056, 4096,
         4097, 5001, 8192, 8200, 16384, 32768, 65536, 131072]
SECOND_SIZES = [7, 300, 1100]  # of another symbol, together with one of:
PAIRED_SIZES = [33, 256, 1024, 1280, 2056, 8200]
MAX_ELEMENTS = 1 << 21
MAX_LARGE_ELEMENTS = 1 << 27
SMALL = 3


@functools.lru_cache(maxsize=None)
def split_shape(text):
    """"T[rows.., Q, K]" -> ("T", ("rows..", "Q", "K"))."""
    dtype, dims = re.fullmatch(r"\s*(\w+)\s*\[(.*)\]\s*", text).groups()
    parts, depth, start = [], 0, 0
    for i, c in enumerate(dims + ","):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(dims[start:i].strip())
            start = i + 1
    return dtype, tuple(p for p in parts if p)


def bind(op, problem):
    """The value of each symbol in one of the manifest's problems; an ellipsis binds a list."""
    symbols = {}
    for operand, given in zip(op["operands"], problem["operands"]):
        if not given["present"]:
            continue
        _, terms = split_shape(operand["shape"])
        dims, extra = list(given["dims"]), len(given["dims"]) - len(terms) + 1
        for term in terms:
            if term.endswith(".."):
                symbols.setdefault(term, dims[:extra])
                dims = dims[extra:]
                continue
            if re.fullmatch(r"[A-Za-z_]\w*", term):
                symbols.setdefault(term, dims[0])
            dims = dims[1:]
    return symbols


@functools.lru_cache(maxsize=None)
def python_of(term):
    """A dim written in the manifest's language: C's operators, of which / divides integers and c ? a : b chooses."""
    return compile(_chosen(term.replace("/", "//").replace("&&", " and ").replace("||", " or ")).strip(), term, "eval")


def _chosen(text):
    """Chains, c ? a : d ? b : e, end with what else there is."""
    parts = re.fullmatch(r"([^?]*)\?([^:?]*):(.*)", text)
    return f"({parts[2]}) if ({parts[1]}) else ({_chosen(parts[3])})" if parts else text


def shape_of(terms, symbols, attributes):
    dims = []
    for term in terms:
        if term.endswith(".."):
            dims += symbols[term]
        elif term in symbols:
            dims.append(symbols[term])
        else:
            names = {k: v for k, v in symbols.items() if not k.endswith("..")}
            dims.append(int(eval(python_of(term), {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}, attributes | names)))
    return dims


def substitutions(symbols):
    """Bindings with small and odd sizes, the equalities of the original kept or broken one by one."""
    dims = [s for s in symbols if not s.endswith("..")]
    small = {s: [2, 3][:len(v)] if s.endswith("..") else min(v, SMALL) for s, v in symbols.items()}
    groups = {frozenset(s for s in dims if symbols[s] == symbols[name]) for name in dims}
    groups |= {frozenset([name]) for name in dims}
    groups = sorted(groups, key=lambda g: (-len(g), sorted(g)))
    leading = [s for s in symbols if s.endswith("..")]
    yield small
    for group in groups:
        for size in SIZES:
            changed = dict(small, **{s: size for s in group})
            yield changed
            yield dict(changed, **{s: [1] for s in leading})
            for second in SECOND_SIZES if size in PAIRED_SIZES else []:
                if leading:
                    yield dict(changed, **{s: [second] for s in leading})
                for other in groups:
                    if not other & group:
                        yield dict(changed, **{s: second for s in other})


def attribute_values(op, given):
    types = {a["name"]: a["type"] for a in op["attributes"]}
    convert = {"float": float, "int": int, "bool": bool, "int[]": lambda v: [int(i) for i in v],
               "float[]": lambda v: [float(i) for i in v]}
    return {name: convert.get(types[name], str)(value) for name, value in given.items()}


@functools.lru_cache(maxsize=None)
def _dims(shapes, given, attributes, others):
    """(text, how many elements the largest has, dims) of the operands, None where one is absent, in a manifest's problem and, if others are
    wanted, in those made from it, each once; given and attributes as JSON. Of most choices of dtypes they are the same. Tuples alone, since
    there are millions: Python's collector of garbage looks at them once, and at lists again and again."""
    given, attributes = json.loads(given), json.loads(attributes)
    symbols = bind({"operands": [{"shape": shape} for shape in shapes]}, given)
    terms = [split_shape(shape)[1] if was["present"] else None for shape, was in zip(shapes, given["operands"])]
    made = {}
    for changed in [symbols, *(substitutions(symbols) if others else [])]:
        dims = tuple(None if term is None else tuple(shape_of(term, changed, attributes)) for term in terms)
        made.setdefault(str(dims), dims)
    return tuple((text, max((math.prod(each) for each in dims if each is not None), default=0), dims) for text, dims in made.items())


def of_types(op, types, elements_from=-1, elements_to=math.inf, listed_only=False):
    """capi.Problems of the op for one choice of its type parameters, each once, small ones first: those that its manifest lists
    and those made from them."""
    found, structures = {}, set()
    shapes = tuple(operand["shape"] for operand in op["operands"])
    dtypes = [types.get(dtype, dtype) for dtype, _ in map(split_shape, shapes)]
    defaults = attribute_values(op, {a["name"]: a["default"] for a in op["attributes"] if a.get("default") is not None})
    for given in op["problems"]:
        attributes = attribute_values(op, given["attributes"])
        attributes |= {t["attribute"]: types[t["name"]] for t in op["types"] if t["attribute"]}
        symbols = bind(op, given)
        structure = str((list(symbols), [[a == b for b in symbols.values()] for a in symbols.values()],
                         [operand["present"] for operand in given["operands"]]))
        others = not listed_only and structure not in structures
        structures.add(structure)
        how = str(attributes)
        for text, elements, dims in _dims(shapes, json.dumps(given), json.dumps(defaults | attributes), others):
            if elements_from < elements <= elements_to or not shapes:
                operands = tuple(None if each is None else (dtype, each) for dtype, each in zip(dtypes, dims))
                found.setdefault(text + how, (elements, operands, attributes))
    return [capi.Problem(op["name"], *rest) for _, *rest in sorted(found.values(), key=lambda item: item[0])]


def legal(bundle, problem, kind, elements_to):
    """What kb_infer says about a problem; None where the op does not accept it, makes nothing of it or too much."""
    try:
        inferred = bundle.infer(problem, kind)
    except capi.KbError:
        return None
    results = [math.prod(r["dims"]) for r in inferred["results"] if r["present"]]
    # A dim may be an attribute, of any size.
    return None if inferred["empty"] or max(results) > elements_to else inferred
