"""Promise: no fenced block of the pages is without a check, and what CONTRIBUTING.md draws of the tree is there."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pages  # noqa: E402
from classes import BLOCKS, block_class_of  # noqa: E402

ALL = [block for page in pages.NAMES for block in pages.blocks(page)]


def test_every_block_is_in_a_class():
    lost = [str(block) for block in ALL if block_class_of(block) is None]
    assert not lost, "say in tests/readme/classes.py how these are tested:\n" + "\n".join(lost)
    assert 2 * len(ALL) == sum(pages.text_of(page).count("```") for page in pages.NAMES), "a fence that pages.FENCE does not see"


def test_every_class_has_blocks_and_a_test_that_asks_for_them():
    here = pathlib.Path(__file__).resolve().parent
    for name, file, _ in BLOCKS:
        assert any(block_class_of(block) == name for block in ALL), f"no block is of class {name}"
        asks = f'"{name}"' in (here / file).read_text()
        assert asks or (name, file) in {("library", "test_authoring.py"), ("commands", "test_commands.py")}


def test_commands_are_the_blocks_that_are_read_as_shell():
    assert [b for b in ALL if pages.is_shell(b)] == [b for b in ALL if block_class_of(b) == "commands"]


def test_the_tree_of_rooms_is_the_tree():
    [block] = [block for block in ALL if block_class_of(block) == "tree"]
    room = None
    for line in block.text.splitlines():
        room = line.split("/")[0] if not line.startswith(" ") else room
        assert (pages.ROOT / room).is_dir()
        for folder in re.findall(r"([\w/]+)/(?=[\s,]|$)", line):
            assert (pages.ROOT / folder).is_dir() or (pages.ROOT / room / folder).is_dir(), f"{block}: no {folder}/"
        for name in re.findall(r"\b[\w]+\.(?:md|h|fbs)\b", line, re.I):
            assert list((pages.ROOT / room).rglob(name)) or list((pages.ROOT / "schemas").rglob(name)), f"{block}: no {name}"
    names = re.search(r"^scripts/\s+(.*)", block.text, re.M).group(1).split(", ")
    assert names and all((pages.ROOT / "scripts" / name).exists() for name in names)
