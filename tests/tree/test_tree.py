"""The tree keeps its shape: who may include whom, where ops may be named, how long lines and files get."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAY_INCLUDE = {
    "schemas": {"schemas"},
    "loader": {"loader", "schemas"},
    "builder": {"builder", "loader", "schemas"},
    "ffi": {"ffi", "loader", "schemas"},
}
CODE = {".h", ".cc", ".cu", ".cuh", ".py"}
LONGEST_FILE = 800
# Words of a room that a room below it must not know, and words for work left undone.
FOREIGN = {
    "schemas": r"\bcuda\.h\b|xla/|Python\.h|nvrtc",
    "loader": r"cuda_runtime|xla/|Python\.h|nvrtc|nvFatbin",
}
UNFINISHED = r"\b(TODO|FIXME|XXX|HACK)\b|^(//|/\*|#) CONTRACT\b"
BANNED_NAMES = re.compile(r"\b(class|struct)\s+\w*(Manager|Helper|Utils?)\b")
# A type, or the name before what a function or constant begins with.
OWN_NAME = re.compile(r"(?:struct|class|enum class|enum|union) (\w+)"
                      r"|(?!using |namespace |static_assert)(?:\[\[noreturn\]\] )?[A-Za-z][^=(]*?\b(\w+)(?:\[\w*\])* ?[={;(]")
# By design: functions of these names, conveniences over call() with gradients; and the planner's nodes, whose names are
# cuDNN's own, which some ops share.
# infer.py and template.py say "grouped" of what stands in brackets: another word there would compile every kernel of CuTe DSL again.
NAMES_OPS_BY_DESIGN = ("ffi/python/kbundle/jax/", "builder/provider/cudnn/planner/", "builder/provider/cute/infer.py",
                       "builder/provider/cute/template.py")


def tree():
    listing = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in listing if name and (ROOT / name).is_file()]


FILES = tree()


def sources(*rooms, suffixes=CODE):
    for path in FILES:
        relative = path.relative_to(ROOT)
        if relative.parts[0] in rooms and path.suffix in suffixes:
            yield str(relative), path.read_text()


def findings(pattern, *rooms, suffixes=CODE):
    expression = re.compile(pattern)
    return [f"{name}:{number}: {line.strip()}" for name, text in sources(*rooms, suffixes=suffixes)
            for number, line in enumerate(text.splitlines(), 1) if expression.search(line)]


def room_of_header():
    rooms = {}
    for path in FILES:
        relative = path.relative_to(ROOT)
        if path.suffix == ".h" and relative.parts[0] in MAY_INCLUDE:
            parts = relative.parts
            key = "/".join(parts[parts.index("include") + 1:]) if "include" in parts else path.name
            rooms.setdefault(key, set()).add(parts[0])
    return rooms


@pytest.mark.parametrize("room", MAY_INCLUDE)
def test_rooms_include_only_the_rooms_below_them(room):
    rooms, wrong = room_of_header(), []
    for name, text in sources(room, suffixes={".h", ".cc"}):
        for included in re.findall(r'#include ["<]([^">]+)[">]', text):
            owners = rooms.get(included) or rooms.get(pathlib.PurePath(included).name if '"' in text else "", set())
            if owners and not owners & MAY_INCLUDE[room]:
                wrong.append(f"{name} includes {included} of {sorted(owners)}")
    assert not wrong


@pytest.mark.parametrize("room", FOREIGN)
def test_lower_rooms_do_not_know_the_frameworks_above(room):
    wrong = [f for f in findings(FOREIGN[room], room, suffixes={".h", ".cc"}) if "#include" in f]
    assert not wrong


def test_no_op_is_named_outside_kernels_and_tests():
    names = set()
    for path in FILES:
        if path.suffix == ".toml" and path.relative_to(ROOT).parts[0] == "kernels":
            text = path.read_text()
            names |= set(re.findall(r"^\[op\.(\w+)\]", text, re.M)) | set(re.findall(r'^\[family\]\nname\s*=\s*"(\w+)"', text, re.M))
    assert names, "no op found in kernels/*/*.toml"
    pattern = r"\b(" + "|".join(sorted(names)) + r")\b"
    wrong = findings(pattern, "builder", "loader", "ffi", "schemas")
    # Comments may give examples; code may not name an op.
    wrong = [w for w in wrong if not re.search(r":\d+: (//|\*|/\*)", w) and "  // " not in w
             and not w.startswith(NAMES_OPS_BY_DESIGN)]
    assert not wrong


def test_nothing_builds_from_the_kernels_but_the_bundle():
    lists = [p for p in FILES if p.name == "CMakeLists.txt"]
    assert lists
    named = [str(p.relative_to(ROOT)) for p in lists if re.search(r"kernels/(?!include)", p.read_text())]
    assert not named


def test_lines_are_at_most_100_columns_and_150_in_python():
    # Tests of the builder hold manifests and kernels as raw strings, which have lines of their own.
    sources = ("schemas", "loader", "builder", "ffi", "kernels", "scripts")
    wrong = findings(r"^.{101,}$", *sources, suffixes=CODE - {".py"})
    wrong += findings(r"^.{151,}$", *sources, "tests", suffixes={".py"})
    assert not wrong


def test_no_file_outgrows_its_reader():
    long = [(name, text.count("\n")) for name, text in sources(*MAY_INCLUDE, "kernels", "tests", "scripts")
            if text.count("\n") > LONGEST_FILE]
    assert not long


def test_nothing_is_left_unfinished():
    me = f"{pathlib.Path(__file__).relative_to(ROOT)}:"
    wrong = [f for f in findings(UNFINISHED, *MAY_INCLUDE, "kernels", "tests", "scripts") if not f.startswith(me)]
    assert not wrong


def test_lines_of_manifests_are_at_most_140_columns():
    manifests = sorted((ROOT / "kernels").glob("*/*.toml"))
    wrong = [f"{path.name}:{number}" for path in manifests for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 140]
    assert manifests and not wrong


def test_no_type_is_named_after_nothing():
    wrong = [f"{name}: {m.group(0)}" for name, text in sources(*MAY_INCLUDE, suffixes={".h", ".cc"})
             for m in BANNED_NAMES.finditer(text)]
    assert not wrong


def own_names(text):
    """What a source defines in an unnamed namespace of its own: types, functions and constants; and other names for types, with those."""
    names = set()
    for body in re.findall(r"^namespace \{$(.*?)^\}  // namespace$", text, re.S | re.M):
        # Raw strings hold manifests and kernels; what is indented belongs to something else.
        for line in re.sub(r'R"(\w*)\(.*?\)\1"', '""', body, flags=re.S).splitlines():
            found, alias = OWN_NAME.match(line), re.match(r"using (\w+) = (.*);", line)
            if alias:
                names.add(alias.groups())
            if found:
                names.add(found[1] or found[2])
    return names


def compiled_together():
    """Sources and the room whose names they share, as kb_compile_together in CMakeLists.txt has it: rooms of fewer than four are one."""
    rooms = {}
    for path, text in sources(*MAY_INCLUDE, "tests", suffixes={".cc"}):
        # A provider is a room of its own.
        folders = path.split("/")[:-1]
        room = tuple(folders[:3 if folders[1] == "provider" else 2])
        if path.startswith("builder/provider/cudnn/planner/") or room[0] == "tests" and room[1] not in (*MAY_INCLUDE, "support"):
            continue
        rooms.setdefault(room, []).append((path, text))
    for room, members in rooms.items():
        for path, text in members:
            yield (room[0], "small") if len(members) < 4 else room, path, text


def test_the_sources_of_a_room_keep_different_names_to_themselves():
    # They are compiled together (KB_TOGETHER in CMakeLists.txt): one's function must not be called for another's.
    places, count = {}, 0
    for room, path, text in compiled_together():
        for own in own_names(text):
            name, meaning = own if isinstance(own, tuple) else (own, path)
            places.setdefault((room, name), {}).setdefault(meaning, path)
            count += 1
    assert count > 400
    wrong = [f"{name}: {', '.join(meanings.values())}" for (_, name), meanings in places.items() if len(meanings) > 1]
    assert not wrong


def test_what_a_source_says_it_uses_it_uses():
    # clang-tidy looks for these only in a main file, which a source among others is not.
    wrong = [f"{name}: using ..::{used}" for name, text in sources(*MAY_INCLUDE, "tests", suffixes={".cc"})
             for used in re.findall(r"^ *using [\w:]+::(\w+);", text, re.M) if len(re.findall(rf"\b{used}\b", text)) < 2]
    assert not wrong


def test_every_test_file_opens_with_its_promise():
    wrong = [name for name, text in sources("tests")
             if name.endswith("_test.cc") and not text.startswith("//")
             or pathlib.Path(name).name.startswith("test_") and not text.startswith('"""')]
    assert not wrong


def test_every_source_opens_with_what_it_is_about():
    # The problem and the idea, which the header beside it does not say; said of no two files alike.
    tops = {name: text.split("\n", 1)[0] for name, text in sources(*MAY_INCLUDE, suffixes={".cc"})}
    assert len(tops) > 200
    assert not [name for name, line in tops.items() if not re.match(r"// \S", line)]
    files = {}
    for name, line in tops.items():
        files.setdefault(line, []).append(name)
    assert not [names for names in files.values() if len(names) > 1]


def test_links_between_documents_lead_somewhere():
    wrong = []
    for path in (p for p in FILES if p.suffix == ".md"):
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if "://" not in target and not (path.parent / target).exists():
                wrong.append(f"{path.relative_to(ROOT)}: {target}")
    assert not wrong


def test_generated_files_are_not_committed():
    wrong = [str(p.relative_to(ROOT)) for p in FILES if p.name.endswith("_generated.h") or p.suffix in {".so", ".kb", ".cubin"}]
    allowed = [w for w in wrong if w.startswith("tests/golden/")]
    assert sorted(wrong) == sorted(allowed)
