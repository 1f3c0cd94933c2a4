"""bundle.fbs as tables and structs: which field is where. Reads only what that file uses of FlatBuffers' language."""

import dataclasses
import re

SCALARS = {"uint8": "B", "int8": "b", "bool": "?", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i",
           "uint64": "Q", "int64": "q", "double": "d"}
SIZES = {"B": 1, "b": 1, "?": 1, "H": 2, "h": 2, "I": 4, "i": 4, "Q": 8, "q": 8, "d": 8}


@dataclasses.dataclass
class Field:
    name: str
    type: str            # "uint32", "Span", "[Rule]", "[uint8:32]"
    default: int = 0
    offset: int = 0      # in a struct


@dataclasses.dataclass
class Layout:
    fields: list
    struct: bool
    size: int = 0        # of a struct
    alignment: int = 1


def size_and_alignment(schema, kind):
    array = re.fullmatch(r"\[(\w+):(\d+)\]", kind)
    if array:
        size, alignment = size_and_alignment(schema, array[1])
        return size * int(array[2]), alignment
    if kind in SCALARS:
        size = SIZES[SCALARS[kind]]
        return size, size
    return schema[kind].size, schema[kind].alignment


def place(schema, layout):
    """Gives a struct's fields their offsets: each at a multiple of its alignment, as C does."""
    at = 0
    for field in layout.fields:
        size, alignment = size_and_alignment(schema, field.type)
        field.offset = -(-at // alignment) * alignment
        at = field.offset + size
        layout.alignment = max(layout.alignment, alignment)
    layout.size = -(-at // layout.alignment) * layout.alignment


def parse(text):
    """Layouts by name."""
    text = re.sub(r"//.*", "", text)
    schema = {}
    for kind, name, body in re.findall(r"\b(table|struct)\s+(\w+)\s*\{(.*?)\}", text, re.S):
        fields = [Field(field, kind_of, int(default or 0)) for field, kind_of, default in
                  re.findall(r"(\w+)\s*:\s*([\w\[\]:]+)\s*(?:\([^)]*\))?\s*(?:=\s*(-?\d+))?\s*;", body)]
        schema[name] = Layout(fields, kind == "struct")
        if kind == "struct":
            place(schema, schema[name])
    return schema
