"""Promise: clang-tidy looks at a file again when anything that its compilation read has changed, and only then, in any checkout."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import tidy  # noqa: E402


@pytest.fixture
def checkout(monkeypatch):
    """A function that makes a checkout in a folder and gives the key of its one source."""
    def make(folder, header="int f();\n", other="int g();\n"):
        (folder / "build/release").mkdir(parents=True)
        for name, text in {"a.cc": '#include "a.h"\n', "a.h": header, "b.h": other}.items():
            (folder / name).write_text(text)
        monkeypatch.setattr(tidy, "ROOT", folder)
        monkeypatch.setattr(tidy, "BUILD", folder / "build/release")
        tidy.content.cache_clear()
        entry = {"file": f"{folder}/a.cc", "command": f"c++ -I{folder}/include -o a.cc.o -c {folder}/a.cc"}
        return tidy.key(entry, {"a.cc.o": ["../../a.cc", "../../a.h"]}, "clang-tidy 14")
    return make


def test_a_header_that_was_read_counts_and_one_that_was_not_does_not(checkout, tmp_path):
    first = checkout(tmp_path / "first")
    assert checkout(tmp_path / "second") == first
    assert checkout(tmp_path / "third", other="int h();\n") == first
    assert checkout(tmp_path / "fourth", header="int f(int);\n") != first


def test_a_source_that_was_not_built_has_no_key(tmp_path):
    assert tidy.key({"file": "x.cc", "command": "c++ -o x.o -c x.cc"}, {}, "") is None
