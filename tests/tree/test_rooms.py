"""A room knows only the rooms below it: what each may include is written here, and its README says the same."""

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
    "device": "support",
    "model": "support score",
    "provider": "model",
    "expression": "support model",
    "problem": "support model expression",
    "store": "support model",
    "manifest": "support score model provider expression",
    "compile": "support score source model provider problem tools store",
    "pack": "support model provider problem store record compile",
    "provider/host": "support model provider manifest compile",
    "provider/cuda": "support model provider manifest compile",
    "provider/triton": "support source model provider expression manifest tools store compile",
    "provider/cudnn": "support score model provider problem manifest tools store compile provider/cuda",
    "provider/cublaslt": "support model provider problem manifest tools store record compile device pack provider/cuda",
    "pipeline": "support model provider expression problem manifest store compile pack",
    "tune": "support model provider problem manifest tools store record compile device pack pipeline",
    "conformance": "support problem pack tune",
    "cli": "*",
}
TREES = {"builder": BUILDER}
MOST_FILES, LONGEST_FILE = 40, 400


def room_of(relative, tree, rooms):
    """The deepest room that holds the file: provider/cuda before provider."""
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


@pytest.mark.parametrize("tree", TREES)
def test_a_room_includes_only_what_it_may(tree):
    rooms, wrong = TREES[tree], []
    for relative, text in sources(tree):
        room = room_of(relative, tree, rooms)
        may = set(rooms) if rooms[room] == "*" else {room, *rooms[room].split()}
        for included in re.findall(rf'#include "({tree}/[^"]+)"', text):
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
            room_of(included, tree, rooms) for included in re.findall(rf'#include "({tree}/[^"]+)"', text)}
    unused = {room: set(below.split()) - used[room] for room, below in rooms.items() if below != "*"}
    assert not {room: names for room, names in unused.items() if names}


@pytest.mark.parametrize("tree", TREES)
def test_every_room_has_a_readme_that_a_newcomer_can_start_with(tree):
    for room, below in TREES[tree].items():
        page = ROOT / tree / room / "README.md"
        assert page.exists(), f"{tree}/{room} has no README.md"
        text = page.read_text()
        assert text.startswith(f"# {tree}/{room}\n") and "Way in: " in text and "Uses: " in text
        for name in re.findall(r"`([\w/]+\.(?:h|cc))`", text):
            assert (page.parent / name).exists(), f"{page.relative_to(ROOT)} names {name}, which is not there"


@pytest.mark.parametrize("tree", TREES)
def test_no_room_is_a_crowd_and_no_source_a_scroll(tree):
    count = {}
    for relative, text in sources(tree):
        folder = relative.rsplit("/", 1)[0]
        count[folder] = count.get(folder, 0) + 1
        assert text.count("\n") <= LONGEST_FILE, f"{relative} has {text.count(chr(10))} lines"
    assert not {folder: n for folder, n in count.items() if n > MOST_FILES}
