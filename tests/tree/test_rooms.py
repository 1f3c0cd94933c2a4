"""A room knows only the rooms below it: what each may include is written here, and its README says the same. Folders, files and
functions stay small enough to read."""

import pathlib
import re
import sys

import pytest
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_tree import FILES, ROOT  # noqa: E402

# From the lowest to the highest; a room may include itself and what stands beside it here.
BUILDER = {
    "support": "",
    "score": "support",
    "source": "support",
    "tools": "support",
    "record": "support",
    "starter": "support",
    "usage": "",
    "library": "",
    "device": "support",
    "model": "support score",
    "provider": "model",
    "expression": "support model",
    "problem": "support model expression",
    "report": "problem",
    "store": "support model",
    "manifest": "support score model provider expression",
    "compile": "support score source model provider problem tools store",
    "pack": "support model provider problem store record compile",
    "provider/host": "support model provider manifest tools compile",
    "provider/cuda": "support model provider manifest tools compile",
    "provider/triton": "model provider expression manifest tools store compile",
    "provider/warp": "support model provider expression manifest tools compile",
    "provider/cute": "support score source model provider expression problem manifest tools store compile",
    "provider/cudnn": "support score model provider problem manifest tools store compile device provider/cuda",
    "provider/cublaslt": "support model provider problem manifest tools store record compile device pack provider/cuda",
    "pipeline": "support model provider expression problem manifest store compile pack",
    "tune": "support model provider problem manifest tools store record compile device pack pipeline",
    "conformance": "support problem pack tune",
    "specialize": "support provider problem manifest pipeline tune conformance",
    "cli": "*",
}
LOADER = {
    "support": "",
    "problem": "",
    "provider": "",
    "verify": "support problem provider",
    "open": "support problem verify",
    "bind": "support problem open",
    "resolve": "support problem provider open bind",
    "select": "support provider open bind resolve",
    "parts": "support problem open select",
    "plan": "problem open resolve select",
    "cuda": "support problem open resolve plan",
    "host": "support provider open resolve plan",
    "provider/cuda": "support provider verify",
    "provider/host": "support provider verify",
    "provider/triton": "support provider verify",
    "provider/warp": "support provider verify",
    "provider/cute": "provider/cuda",
    "provider/cudnn": "support verify open resolve cuda provider/cuda",
    "provider/cublaslt": "support problem verify open resolve plan cuda provider/cuda",
    "runtime": "support problem provider open parts plan cuda host "
               "provider/cuda provider/host provider/triton provider/warp provider/cudnn provider/cublaslt "
               "provider/cute",
    "describe": "support problem provider open bind resolve select parts runtime",
}
# Public headers have no folders, so here is which room is behind each.
PUBLIC = {
    "support": "allocator.h json.h utf8.h",
    "problem": "problem.h target.h",
    "open": "bundle.h",
    "resolve": "check_plan.h launch.h",
    "select": "modes.h select.h tuned.h",
    "parts": "parts.h",
    "plan": "plan.h",
    "cuda": "driver_api.h",
    "provider/cublaslt": "cublaslt_api.h product_descriptors.h",
    "runtime": "log.h open_bundles.h runtime.h",
    "bind": "cuts.h",
    "describe": "describe.h description.h explanation.h",
}
TREES = {"builder": BUILDER, "loader": LOADER}
MOST_FILES, LONGEST_FILE, LONGEST_FUNCTION = 40, 400, 80
ROOM_OF_HEADER = {f"kbundle/{header}": room for room, headers in PUBLIC.items() for header in headers.split()}


def room_of(relative, tree, rooms):
    """The deepest room that holds the file: provider/cuda before provider."""
    public = relative.removeprefix(f"{tree}/include/")
    if public in ROOM_OF_HEADER:
        return ROOM_OF_HEADER[public]
    parts = pathlib.PurePosixPath(relative).parts[1:-1]
    for depth in range(len(parts), 0, -1):
        if "/".join(parts[:depth]) in rooms:
            return "/".join(parts[:depth])
    raise AssertionError(f"{relative} is in no room of {tree}; add its folder to {pathlib.Path(__file__).name}")


def sources(tree):
    for path in FILES:
        relative = path.relative_to(ROOT).as_posix()
        if relative.startswith(tree + "/") and path.suffix in {".h", ".cc"} and relative.count("/") > 1:
            yield relative, path.read_text()


def included_by(text, tree):
    """Sources of the tree that a source includes, each by its path from the repository's root."""
    for included in re.findall(r'^#include "([^"]+)"', text, re.M):
        if included.startswith(f"{tree}/"):
            yield included
        elif tree == "loader" and included in ROOM_OF_HEADER:
            yield f"loader/include/{included}"


@pytest.mark.parametrize("tree", TREES)
def test_a_room_includes_only_what_it_may(tree):
    rooms, wrong = TREES[tree], []
    for relative, text in sources(tree):
        room = room_of(relative, tree, rooms)
        may = set(rooms) if rooms[room] == "*" else {room, *rooms[room].split()}
        for included in included_by(text, tree):
            if room_of(included, tree, rooms) not in may:
                wrong.append(f"{relative} includes {included}")
    assert not wrong


@pytest.mark.parametrize("tree", TREES)
def test_arrows_between_rooms_run_one_way(tree):
    seen = set()
    for room, below in TREES[tree].items():
        assert below == "*" or set(below.split()) <= seen, f"{room} may include a room that stands above it"
        seen.add(room)


@pytest.mark.parametrize("tree", TREES)
def test_a_room_may_include_nothing_that_it_does_not(tree):
    rooms, used = TREES[tree], {room: set() for room in TREES[tree]}
    for relative, text in sources(tree):
        used[room_of(relative, tree, rooms)] |= {
            room_of(included, tree, rooms) for included in included_by(text, tree)}
    unused = {room: set(below.split()) - used[room] for room, below in rooms.items() if below != "*"}
    assert not {room: names for room, names in unused.items() if names}


@pytest.mark.parametrize("tree", TREES)
def test_every_room_has_a_readme_that_a_newcomer_can_start_with(tree):
    for room, below in TREES[tree].items():
        page = ROOT / tree / room / "README.md"
        assert page.exists(), f"{tree}/{room} has no README.md"
        text = page.read_text()
        assert text.startswith(f"# {tree}/{room}\n") and "Way in: " in text
        uses = {"*": "every room", "": f"nothing of the {tree}"}.get(below, ", ".join(below.split()))
        assert f"Uses: {uses}." in text, f"{page.relative_to(ROOT)} does not say \"Uses: {uses}.\""
        for name in re.findall(r"`([\w/]+\.(?:h|cc))`", text):
            places = (page.parent, ROOT / tree, ROOT / tree / "include")
            assert any((place / name).exists() for place in places), f"{page.relative_to(ROOT)} names {name}, which is not there"


@pytest.mark.parametrize("tree", TREES)
def test_no_room_is_a_crowd_and_no_source_a_scroll(tree):
    count = {}
    for relative, text in sources(tree):
        folder = relative.rsplit("/", 1)[0]
        count[folder] = count.get(folder, 0) + 1
        assert text.count("\n") <= LONGEST_FILE, f"{relative} has {text.count(chr(10))} lines"
    assert not {folder: n for folder, n in count.items() if n > MOST_FILES}


# Of tests: what several of them share, data, and a provider that is only there.
BESIDE_ROOMS = {"builder": {"manifests", "same"}, "loader": {"provider/toy"}}


@pytest.mark.parametrize("tree", TREES)
def test_tests_lie_in_the_rooms_that_they_test(tree):
    tests = ROOT / "tests" / tree
    folders = {path.parent.relative_to(tests).as_posix() for path in FILES if path.suffix == ".cc" and path.is_relative_to(tests)}
    assert folders and folders - BESIDE_ROOMS[tree] <= set(TREES[tree])
    long = {path.name: count for path in FILES if path.parent in (ROOT / "tests/support", *(tests / folder for folder in folders))
            and path.suffix in {".cc", ".h"} and (count := path.read_text().count("\n")) > LONGEST_FILE}
    assert not long


# What a brace may open that is no body of a function, by the words before it.
NO_FUNCTION = re.compile(r"^(extern|namespace|class|struct|union|enum|template)\b[^()]*$|=$|^$")
IGNORED = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
                     re.S | re.M)


def functions(text):
    """(first line, number of lines) of every function, from its return type to its closing brace; lambdas are part of theirs."""
    text = IGNORED.sub(lambda found: "\n" * found.group(0).count("\n"), text)
    line, words, begins, stack = 1, "", 1, []
    for c in text:
        if c == "\n":
            line += 1
        if c == "{":
            inside = any(is_function for is_function, _ in stack)
            stack.append((not inside and not NO_FUNCTION.search(" ".join(words.split())), begins))
        if c == "}" and stack:
            is_function, first = stack.pop()
            if is_function:
                yield first, line - first + 1
        if c in "{};":
            words = ""
        elif words or not c.isspace():
            begins = begins if words else line
            words += c


def test_the_length_of_a_function_is_measured_right():
    text = '''namespace a {
struct B { int x = 1; };
// no function {
template <typename T>
int F(int a,
      const char* b = "{") {
  auto g = [&] {
    return 1;
  };
  if (a) {
    return g();
  }
  return R"x(})")x"[0];
}
constexpr int kTable[] = {
    1, 2};
class C {
  void One() {}
  void Two() const {
  }
};
}
'''
    assert list(functions(text)) == [(4, 11), (18, 1), (19, 2)]


@pytest.mark.parametrize("tree", TREES)
def test_functions_fit_a_screen(tree):
    long = [f"{relative}:{first}: {count} lines" for relative, text in sources(tree)
            for first, count in functions(text) if count > LONGEST_FUNCTION]
    assert not long
