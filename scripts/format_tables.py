"""Writes the stored numbers of schemas/ into section 12 of schemas/FORMAT.md, from the headers themselves.

Without an option the page is rewritten; --check changes nothing and exits 1 when the page is another one.
"""

import argparse
import pathlib
import re
import sys

SCHEMAS = pathlib.Path(__file__).resolve().parent.parent / "schemas"
BEGIN, END = "<!-- numbers: begin -->\n", "<!-- numbers: end -->\n"
ENUMS = ["TargetKind", "StepKind", "ArgKind", "AttributeType", "VmapRule", "Opcode"]
CUBLASLT_ENUMS = ["ProductTensor", "ProductNumber", "ProductCondition"]
BYTES = {"uint64_t": 8, "int32_t": 4}


def enumerators(header, name):
    """(number, name, comment) in order; kCount, which counts them, is none."""
    body = re.search(rf"enum class {name} : uint8_t \{{(.*?)\}};", header, re.S).group(1)
    number, rows = -1, []
    for line in body.splitlines():
        code, _, comment = line.partition("//")
        words = [word for word in code.split(",") if word.strip()]
        for i, word in enumerate(words):
            key, _, value = (part.strip() for part in word.partition("="))
            number = int(value) if value else number + 1
            if key != "kCount":
                rows.append((number, key, comment.strip() if i + 1 == len(words) else ""))
    return rows


def table(title, head, rows):
    lines = [f"**{title}**", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def of_enum(header, name):
    rows = enumerators(header, name)
    if any(comment for _, _, comment in rows):
        return table(name, ["number", "name", "what"], rows)
    return table(name, ["number", "name"], [row[:2] for row in rows])


def of_dtypes(header, source):
    names = re.findall(r'\{"(\w+)", (\d+), "[^"]*"\},', source)
    rows = [(number, *names[number]) for number, _, _ in enumerators(header, "DType")]
    return table("DType", ["number", "name", "bytes"], rows)


def of_struct(header, name):
    body = re.search(rf"struct {name} \{{(.*?)\}};", header, re.S).group(1)
    offset, rows = 0, []
    for kind, field, count, comment in re.findall(r"(\w+) (\w+)(?:\[(\d+)\])?;\s*//\s*(.*)", body):
        size = BYTES[kind] * int(count or 1)
        rows.append((offset, size, field, comment))
        offset += size
    return table(name, ["offset", "bytes", "field", "what"], rows)


def of_schema(schema, name):
    flags, body = re.search(rf"enum {name} : \w+ (\(bit_flags\) )?\{{(.*?)\}}", schema).groups()
    rows = []
    for i, word in enumerate(body.split(",")):
        key, _, value = (part.strip() for part in word.partition("="))
        rows.append((1 << i if flags else int(value), key))
    return table(name, ["number", "name"], rows)


def tables():
    header = (SCHEMAS / "include/kbundle/format.h").read_text()
    dtypes = (SCHEMAS / "include/kbundle/dtype.h").read_text()
    schema = (SCHEMAS / "bundle.fbs").read_text()
    parts = [of_dtypes(dtypes, (SCHEMAS / "src/dtype.cc").read_text())]
    parts += [of_enum(header, name) for name in ENUMS]
    parts += [of_schema(schema, name) for name in ("BlobFormat", "TunedFlags")]
    cublaslt = (SCHEMAS / "include/kbundle/provider/cublaslt.h").read_text()
    parts += [of_enum(cublaslt, name) for name in CUBLASLT_ENUMS]
    return "\n".join(parts + [of_struct(cublaslt, "StoredAlgorithm")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the page is another one")
    parser.add_argument("--page", type=pathlib.Path, default=SCHEMAS / "FORMAT.md", help="the page [schemas/FORMAT.md]")
    options = parser.parse_args()
    before = options.page.read_text()
    head, rest = before.split(BEGIN)
    after = head + BEGIN + tables() + END + rest.split(END)[1]
    if options.check and after != before:
        sys.exit(f"{options.page}: section 12 is not what schemas/ says; run scripts/format_tables.py")
    if not options.check:
        options.page.write_text(after)


if __name__ == "__main__":
    main()
