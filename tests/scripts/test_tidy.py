"""Promise: clang-tidy looks at a file again when anything that its compilation read has changed, and only then, in any checkout."""

import json
import os
import pathlib
import shutil
import sys
import time

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


@pytest.fixture
def together(monkeypatch, tmp_path):
    """A checkout of two sources that are compiled together, and a function that analyses it and gives the exit code."""
    root, build = tmp_path / "checkout", tmp_path / "checkout/build/release"
    (build / "loader/together").mkdir(parents=True)
    (root / "loader/open").mkdir(parents=True)
    shutil.copy(tidy.ROOT / ".clang-tidy", root)
    (root / "loader/open/a.h").write_text("int f();\n")
    (root / "loader/open/a.cc").write_text('#include "loader/open/a.h"\nint f() { return 1; }\n')
    (root / "loader/open/b.cc").write_text("int g() { return 2; }\n")
    source = build / "loader/together/loader_open_0.cc"
    source.write_text('#include "loader/open/a.cc"\n#include "loader/open/b.cc"\n')
    command = f"c++ -I{root} -o open.o -c {source}"
    (build / "compile_commands.json").write_text(json.dumps([{"directory": str(build), "file": str(source), "command": command}]))
    read = [str(source), *(f"../../loader/open/{name}" for name in ("a.cc", "a.h", "b.cc"))]
    monkeypatch.setattr(tidy, "ROOT", root)
    monkeypatch.setattr(tidy, "BUILD", build)
    monkeypatch.setattr(tidy, "files_read", lambda: {"open.o": read})
    monkeypatch.setenv("KBUNDLE_CACHE", str(tmp_path / "cache"))

    def analyse():
        tidy.content.cache_clear()
        with pytest.raises(SystemExit) as ended:
            tidy.main()
        return ended.value.code
    return root, analyse


def test_a_finding_in_a_source_among_others_is_told_each_time_until_it_is_mended(together, capsys):
    root, analyse = together
    source, good = root / "loader/open/b.cc", "int g() { return 2; }\n"
    source.write_text("bool g(int x) { return x == x; }\n")
    for _ in range(2):
        assert analyse() == 1
        said = capsys.readouterr().out
        assert "b.cc:1" in said and "misc-redundant-expression" in said
    source.write_text(good)
    assert analyse() == 0
    assert "1 files looked at" in capsys.readouterr().out
    assert analyse() == 0
    assert "0 files looked at" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["loader/open/a.h", "loader/open/b.cc", ".clang-tidy"])
def test_what_changed_is_looked_at_again(together, capsys, name):
    root, analyse = together
    assert analyse() == 0
    with (root / name).open("a") as file:
        file.write("# a line\n" if name == ".clang-tidy" else "// a line\n")
    capsys.readouterr()
    assert analyse() == 0
    assert "1 files looked at" in capsys.readouterr().out


def test_what_nothing_has_asked_for_in_a_month_is_forgotten(together):
    _, analyse = together
    tidy.stamps().mkdir(parents=True)
    old, young = tidy.stamps() / "old", tidy.stamps() / "young"
    for stamp, days in ((old, 31), (young, 29)):
        stamp.write_text("")
        os.utime(stamp, (time.time() - days * 86400,) * 2)
    assert analyse() == 0
    assert not old.exists() and young.exists()
