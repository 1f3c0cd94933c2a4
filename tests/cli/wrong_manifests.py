"""Wrong manifests and sources, each as a change of the tiny family, with what the message must say.

A case is (name, change, place, words): `change` is a list of (before, after) in the manifest, a text
or bytes to take its place, or a function of the folder; `place` a pattern of the file and line that
the message must name; `words` stand in it too, the cure among them.
"""

import os

from cli.tiny import MANIFEST, NEGATE

LINE = r"tiny\.toml:\d+:\d+: error: "
FILE = r"tiny\.toml"

NEGATE_STEP = """steps    = [{ kernel = "negate_{T}", range = "N", grain = "4096", args = ["y", "x"] }]"""


def line_of(text):
    """The pattern of an error in the manifest's line that has `text`."""
    number = MANIFEST[:MANIFEST.index(text)].count("\n") + 1
    return rf"tiny\.toml:{number}:\d+: error: "


def step(before, after):
    return [(NEGATE_STEP, NEGATE_STEP.replace(before, after))]


def variant(text):
    return [(NEGATE_STEP, text + "\n" + NEGATE_STEP)]


def source(text):
    return lambda folder: (folder / "negate.cc").write_text(text)


def folder_as_source(folder):
    (folder / "negate.cc").unlink()
    (folder / "negate.cc").mkdir()


def fifo(path):
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def fifo_as_source(folder):
    fifo(folder / "negate.cc")


def include(name):
    return source(f"#include {name}\n" + NEGATE)


IN_STEP = line_of(NEGATE_STEP)

# What the manifest's text alone tells.
MANIFESTS = [
    ("a tolerance without end", [("tolerance = 0\n", "tolerance = inf\n")], LINE, ["no tolerance", "^"]),
    ("a summary without end", [('"y = -x"', '"' + "y" * 5000 + '"')], LINE, ["5000 bytes, allowed are 4096"]),
    ("a choice without a name", [("[op.negate]", '[op.negate]\nattributes = { how = { type = "enum", one_of = [""] } }')], LINE,
     ["no name", "^"]),
    ("more choices than there is room for",
     [("[op.negate]", '[op.negate]\nattributes = { how = { type = "enum", one_of = %s } }' % [f"c{n}" for n in range(257)])], LINE,
     ["257 choices, allowed are 256"]),
    ("lets in a cycle", variant('let = { A = "B + 1", B = "A + 1" }'), LINE, ["cycle: A -> B", "^"]),
    ("an unknown name", step('range = "N"', 'range = "M"'), IN_STEP, ["'M'", "known here: ", "N", "^"]),
    ("a condition for a number", step('range = "N"', 'range = "N > 1"'), IN_STEP, ["int", "bool", "^"]),
    ("a number for a condition", variant('when = ["N % 2"]'), LINE, ["bool", "^"]),
    ("a literal over 64 bits", variant('when = ["99999999999999999999 > N"]'), LINE, ["64 bits", "^"]),
    ("a source that is not there", [('"negate.cc"', '"negat.cc"')], LINE, ["negat.cc", "relative to the manifest"]),
    ("an absolute source", [('"negate.cc"', '"/negate.cc"')], LINE, ["relative to its manifest"]),
    ("an absolute reference", [('"reference.py"', '"/reference.py"')], LINE, ["relative to its manifest"]),
    ("a folder as source", folder_as_source, LINE, ["negate.cc", "not there"]),
    ("a pipe as source", fifo_as_source, LINE, ["negate.cc", "not there"]),
    ("no source", [('"negate.cc"', '""')], LINE, ["source"]),
    ("two variants of one name", [('name     = "any"', 'name     = "even"')], LINE, ["a second variant 'even'"]),
    ("a million points", variant("tunables = { A = [" + ", ".join(map(str, range(1024))) + "], B = [" +
                                 ", ".join(map(str, range(1025))) + "] }"), LINE, ["points", "fewer values"]),
    ("a hundred thousand values", variant("tunables = { A = [" + ", ".join(map(str, range(100_000))) + "] }"), LINE,
     ["100000 values", "allowed are"]),
    ("a tunable that nothing uses", variant("tunables = { VEC = [1, 2, 4] }"), LINE,
     ["'VEC'", "3 values", "{VEC}", "^"]),
    ("a name that is not ASCII", [("[op.negate", '[op."négate"')], FILE, ["error"]),
    ("ten megabytes", lambda folder: (folder / "tiny.toml").write_text(MANIFEST + "# x\n" * 2_600_000), FILE,
     ["bytes, allowed are"]),
    ("latin-1", MANIFEST.replace("y = -x", "y = -x \u00b5").encode("latin-1"), FILE, ["error"]),
    ("a NUL", MANIFEST.replace("y = -x", "y = -x \0").encode(), FILE, ["error"]),
    ("UTF-16", MANIFEST.encode("utf-16"), FILE, ["error"]),
    ("nothing", "", FILE, ["'family'", "[family]"]),
    ("comments alone", "# a family\n", FILE, ["'family'", "[family]"]),
    ("a file of another tool", '[project]\nname = "x"\n', FILE, ["'project'", "[family]", "[op.NAME]"]),
    ("parentheses 4000 deep", step('range = "N"', 'range = "' + "(" * 4000 + "N" + ")" * 4000 + '"'), IN_STEP,
     ["nested deeper", "let"]),
    ("arrays 4000 deep", "x = " + "[" * 4000 + "]" * 4000 + "\n", FILE, ["error"]),
    ("a key twice", [('grain = "4096"', 'grain = "4096", grain = "1"')], LINE, ["grain"]),
    ("a negative dim", [("x = [100]", "x = [-1]")], LINE, ["-1", "^"]),
    ("a dim over 64 bits", [("x = [100]", "x = [99999999999999999999]")], FILE, ["error"]),
    ("the least number", [("x = [100]", "x = [-9223372036854775808]")], LINE, ["-9223372036854775808", "^"]),
    ("a CPU in a flag", variant('flags = ["-march=x86-64-v4"]'), LINE, ["targets", "KB_ISA_LEVEL"]),
    ("this machine's CPU in a flag", variant('flags = ["-march=native"]'), LINE, ["targets"]),
    ("flags from a file", variant('flags = ["@flags.txt"]'), LINE, ["write the flags themselves"]),
    ("a plugin", variant('flags = ["-fplugin=evil.so"]'), LINE, ["leave it out"]),
    ("an object among the flags", variant('flags = ["-O2", "other.o"]'), LINE, ["no dash", "source"]),
    ("a linker's file", variant('flags = ["-Wl,other.o"]'), LINE, ["leave it out"]),
    ("a pipe as records", lambda folder: fifo(folder / "tuning/x.jsonl"), r"tuning/x\.jsonl", ["no file but a pipe"]),
    ("a text for a number", variant('max_spill = "0"'), LINE, ["spill"]),
    ("a number for a text", [('name      = "tiny"', "name      = 7")], LINE, ["must be a string", "an integer"]),
    ("capitals in the family", [('name      = "tiny"', 'name      = "Tiny"')], LINE, ["small letters"]),
    ("a date", [("tolerance = 0", "tolerance = 2026-11-22")], LINE, ["dates and times"]),
    ("a bare word", [("tolerance = 0", "tolerance = none")], LINE, ["quotes"]),
    ("a bare name", [('range = "N"', "range = N")], LINE, ["quotes"]),
    ("a section that is none", MANIFEST.replace("[[op.negate.variant]]", "[[op.negate.variants]]"), LINE,
     ["'variants'", "did you mean 'variant'?"]),
    ("one bracket too few", MANIFEST.replace("[[op.negate.variant]]", "[op.negate.variant]"), LINE,
     ["[[op.negate.variant]]"]),
    ("and", variant('when = ["N > 1 and N < 9"]'), LINE, ["&&"]),
    ("or", variant('when = ["N > 1 or N < 9"]'), LINE, ["||"]),
    ("not", variant('when = ["not N > 1"]'), LINE, ["!"]),
    ("a power", step('range = "N"', 'range = "N ** 2"'), IN_STEP, ["multiply", "^"]),
    ("Python's division", step('range = "N"', 'range = "N // 2"'), IN_STEP, ["ceil_div", "^"]),
    ("hexadecimal", step('range = "N"', 'range = "N % 0xff"'), IN_STEP, ["255", "^"]),
    ("a bit mask", step('range = "N"', 'range = "N & 255"'), IN_STEP, ["%", "^"]),
    ("a shift", step('range = "N"', 'range = "N << 1"'), IN_STEP, ["multiply", "^"]),
    ("a tab before the caret", variant('\twhen = ["M > 1"]'), LINE, ["'M'", "      | \t"]),
    ("a target that is none", variant('targets = ["x86-64-v9"]'), LINE, ["x86-64-v2"]),
    ("a provider that is none", [('provider = "host"', 'provider = "hots"')], LINE, ["did you mean 'host'?"]),
    ("an argument that is none", step('"x"]', '"z"]'), IN_STEP, ["'z'", "pointers known here"]),
]

# What only a compiler tells.
SOURCES = [
    ("swapped arguments", step('["y", "x"]', '["x", "y"]'), IN_STEP,
     ["int*", '"x" is an operand', "the kernel takes (int*, const int*)", "`args` passes (const i32* x, i32* y)", "^"]),
    ("an argument too many", step('"x"]', '"x", "i64(N)"]'), IN_STEP, ["takes 2 parameters", "has 3"]),
    ("an argument of another size", [('"i64(K)"] }]\n\n[[', '"i32(K)"] }]\n\n[[')], LINE, ["i32(K)", "long", "^"]),
    ("an argument of another kind", [('"f64(factor)", "i64(K)"] }]\n\n[[', '"i64(K)", "i64(K)"] }]\n\n[[')], LINE,
     ["is double", '"i64(K)"', "^"]),
    ("an unknown kernel", step("negate_{T}", "negat_{T}"), IN_STEP, ["'negat_i32'", "it has: negate_i32", "^"]),
    ("an unknown flag", variant('flags = ["--no-such-flag"]'), r"negate\.cc failed", ["--no-such-flag", "to see it again"]),
    ("a header that is not there", include('"no_such.h"'), r"negate\.cc:1:\d+: ", ["no_such.h"]),
    ("a header that includes itself", lambda folder: (folder / "rows.h").write_text('#include "rows.h"\n'),
     r"rows\.h", ["too deep|nested depth|ROWS_ZERO"]),
    ("no kernel", source("// nothing\n"), IN_STEP, ["'negate_i32'", "it has: none"]),
    ("a typing error", source(NEGATE.replace("-x[i]", "-q[i]")), r"negate\.cc:4:\d+: error: ", ["'q' was not declared"]),
]
