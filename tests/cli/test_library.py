"""Promise: a command that reads a bundle takes a library in several files as one, by its base's file or folder: what is installed of it is shown,
verified and asked, and what is not is named with the command that brings it."""

import json
import shutil

import pytest

BASE = "kbundle parts 1\npackage tiny\nversion 1.0\ndepth 1\nfamily v3 x86-64-v3\nfamily gpu sm_90a sm_100f\n"
PART = "kbundle parts 1\npackage tiny\nversion 1.0\npart v3\n"
INSTALL = 'pip install "tiny[gpu]==1.0"'
ABSENT = [{"target": target, "how": INSTALL} for target in ("sm_90a", "sm_100f")]
ASK = ("tiny.scale", "--operand", "x=f32[4,32]", "--target")


@pytest.fixture(scope="session")
def built(command, tmp_path_factory):
    """Packages of a library: the base with code for x86-64-v2, and v3; its GPU part is not installed."""
    from cli.command import Command
    from cli.tiny import write_tiny
    folder = tmp_path_factory.mktemp("library")
    run, manifest = Command(command, folder / "cache", folder), write_tiny(folder / "source")
    for package, target, beside in (("tiny", "x86-64-v2", BASE), ("tiny_v3", "x86-64-v3", PART)):
        (folder / "site" / package).mkdir(parents=True)
        path = folder / "site" / package / "tiny.kb"
        done = run("build", manifest, "-o", path, "--target", target)
        assert done.code == 0, done.err
        path.with_name("tiny.kb.parts").write_text(beside)
    return folder / "site"


@pytest.fixture
def site(built, tmp_path):
    return shutil.copytree(built, tmp_path / "site")


def files(site):
    return [str(site / package / "tiny.kb") for package in ("tiny", "tiny_v3")]


def test_inspect_shows_each_file_with_its_sizes_and_what_is_not_installed(kbundle, site):
    base, part = files(site)
    done = kbundle("inspect", base)
    assert done.code == 0, done.err
    head, rows = done.out.splitlines()[0], [line.split() for line in done.out.splitlines()]
    assert head.startswith(base + '  "tiny", 2 files, ')
    assert ["targets", "x86-64-v2,", "x86-64-v3"] in rows
    assert f"not here    sm_90a, sm_100f: {INSTALL}\n" in done.out
    said = kbundle("inspect", base, "--json").json
    assert [one["path"] for one in said["parts"]] == [base, part] and said["absent"] == ABSENT
    assert said["file_bytes"] == sum(one["file_bytes"] for one in said["parts"])
    for number, one in enumerate(said["parts"]):
        blobs = [blob for blob in said["blobs"] if blob["part"] == number]
        row, = [row for row in rows if len(row) > 1 and row[1] == one["path"]]
        assert row[0] == one["targets"][0] and len(blobs) > 0
        assert [cell.replace(",", "") for cell in row[2:6]] == [str(number) for number in (
            one["file_bytes"], len(blobs), sum(blob["bytes"] for blob in blobs), sum(blob["stored_bytes"] for blob in blobs))]
    page = kbundle("inspect", base, "--html", "-").out
    assert "tiny.scale/even[T=f32]@x86-64-v3" in page and json.dumps(INSTALL)[1:-1] in page
    one = kbundle("inspect", part, "--json").json
    assert one["path"] == part and one["targets"] == ["x86-64-v3"] and one["absent"] == [], "a part by itself"


def test_a_folder_is_the_library_in_it(kbundle, site, tmp_path):
    wanted = kbundle("inspect", files(site)[0], "--json").json
    for folder in (site / "tiny", site):
        assert kbundle("inspect", folder, "--json").json == wanted
        assert kbundle("verify", folder).code == kbundle("explain", folder, *ASK, "x86-64-v3").code == 0
    assert [part["path"] for part in kbundle("inspect", site / "tiny_v3", "--json").json["parts"]] == files(site)[1:], "a part by itself"
    (tmp_path / "none").mkdir()
    done = kbundle("inspect", tmp_path / "none", "--json")
    assert done.code == 1 and done.json["error"]["code"] == "NOT_FOUND" and "there is no *.kb in it" in done.json["error"]["message"]
    shutil.copy(site / "tiny/tiny.kb", site / "tiny/other.kb")
    for folder in (site / "tiny", site):
        done = kbundle("verify", folder)
        assert done.code == 1 and f"there are 2: {site}/tiny/other.kb, {site}/tiny/tiny.kb; name one of them" in done.err


@pytest.mark.parametrize("target, package", [("x86-64-v2", "tiny"), ("x86-64-v3", "tiny_v3"), ("x86-64-v4", "tiny_v3")])
def test_explain_names_the_part_that_serves(kbundle, site, target, package):
    part, code = str(site / package / "tiny.kb"), "x86-64-v2" if package == "tiny" else "x86-64-v3"
    done = kbundle("explain", site, *ASK, target)
    assert done.code == 0, done.err
    assert f"part       {part}\n" in done.out and "not here" not in done.out
    rows = [line.split(maxsplit=2) for line in done.out.splitlines() if "]@x86-64-v" in line]
    assert [rows[1][0], rows[1][1]] == ["chosen", "tiny.scale/even[T=f32]@" + code] and rows[0][:2] == ["chosen", rows[1][1]]
    assert {row[1].partition("@")[2] for row in rows} == {"x86-64-v2", "x86-64-v3"}
    if package == "tiny_v3":
        assert [f"legal, but {part} goes first"] * 2 == [row[2] for row in rows if row[0] == "legal" and row[1].endswith("v2")]
    said = kbundle("explain", site, *ASK, target, "--json").json
    assert (said["part"], said["chosen"], said["absent"]) == (part, "tiny.scale/even[T=f32]@" + code, [])


def test_explain_says_what_to_install_where_no_part_serves_and_where_a_better_one_is_not_there(kbundle, site):
    done = kbundle("explain", site, *ASK, "sm_90a")
    assert done.code == 1 and f"not here   sm_90a: {INSTALL}\n" in done.out
    assert "no part of 'tiny' has code for this sm_90" in done.err and INSTALL in done.err
    done = kbundle("explain", site, *ASK, "sm_90a", "--json")
    assert done.code == 1 and done.json["chosen"] is done.json["part"] is None
    assert done.json["absent"] == ABSENT[:1] and INSTALL in done.json["error"]
    shutil.rmtree(site / "tiny_v3")
    done = kbundle("explain", site, *ASK, "x86-64-v4")
    assert done.code == 0 and 'not here   x86-64-v3: pip install "tiny[v3]==1.0"\n' in done.out
    said = kbundle("explain", site, *ASK, "x86-64-v4", "--json").json
    assert said["chosen"].endswith("@x86-64-v2") and said["absent"] == [{"target": "x86-64-v3", "how": 'pip install "tiny[v3]==1.0"'}]
    assert kbundle("explain", site, *ASK, "x86-64-v2", "--json").json["absent"] == []


def test_verify_reads_every_file_and_names_what_is_not_there(kbundle, site):
    done = kbundle("verify", site)
    assert done.code == 0, done.err
    assert [line.partition(": every byte is as written: ")[0] for line in done.out.splitlines()[:2]] == files(site)
    assert f"not here   sm_90a, sm_100f: {INSTALL}\n" in done.out
    said = kbundle("verify", site, "--json").json
    assert said["ok"] and [part["path"] for part in said["parts"]] == files(site) and said["absent"] == ABSENT
    assert said["file_bytes"] == sum(part["file_bytes"] for part in said["parts"])


def test_verify_names_every_file_that_is_damaged(kbundle, site):
    for path in files(site):
        with open(path, "r+b") as file:
            file.seek(-40, 2)
            file.write(b"damaged!")
    done = kbundle("verify", site)
    assert done.code == 1 and done.out == "" and all(f"'{path}'" in done.err for path in files(site)), done.err
    done = kbundle("verify", site, "--json")
    assert done.code == 1 and done.json["error"]["code"] == "DATA_LOSS"


def test_verify_of_a_target_asks_all_parts(kbundle, site):
    for target in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        done = kbundle("verify", site, "--target", target, "--json")
        assert done.code == 0 and done.json["missing"] == [] and done.json["problems_checked"] == 3
    done = kbundle("verify", site, "--target", "sm_90a", "--json")
    assert done.code == 1 and {gap["op"] for gap in done.json["missing"]} == {"tiny.scale", "tiny.negate"}
    assert all(INSTALL in gap["reason"] for gap in done.json["missing"])
    done = kbundle("verify", site, "--strict", "--json")
    assert done.code == 1 and {gap["problem"].partition("@")[2] for gap in done.json["missing"]} == {"x86-64-v2", "x86-64-v3"}


def test_extract_takes_a_variant_of_any_part(kbundle, site, tmp_path):
    for path, target in zip(files(site), ("x86-64-v2", "x86-64-v3")):
        variant = "tiny.scale/any[T=f32]@" + target
        assert kbundle("extract", site, variant, "-o", tmp_path / target).code == 0
        (site / "tiny" / "tiny.kb.parts").rename(tmp_path / "aside")
        assert kbundle("extract", path, variant, "-o", tmp_path / "alone", "--force").code == 0
        (tmp_path / "aside").rename(site / "tiny" / "tiny.kb.parts")
        assert (tmp_path / "alone").read_bytes() == (tmp_path / target).read_bytes()
    done = kbundle("extract", site, "tiny.scale/any[T=f32]", "-o", tmp_path / "x")
    assert done.code == 1 and "names 2 variants" in done.err and done.err.count("\n  tiny.scale/any[T=f32]@x86-64-v") == 2
    done = kbundle("extract", site, "tiny.scale/any[T=f32]@sm_100f", "-o", tmp_path / "x")
    assert done.code == 1 and f"code for sm_100f is not here: {INSTALL}" in done.err


@pytest.mark.parametrize("verb", [("inspect",), ("verify",), ("explain", *ASK[:3]), ("extract", "tiny.scale/any")])
def test_every_command_says_what_is_wrong_with_the_files(kbundle, site, tmp_path, verb):
    base, part = files(site)
    words = [verb[0], base, *verb[1:], *(["-o", tmp_path / "x"] if verb[0] == "extract" else [])]
    (site / "tiny_v3/tiny.kb.parts").write_text(PART.replace("1.0", "2.0"))
    done = kbundle(*words, "--json")
    assert done.code == 1 and done.json["error"]["code"] == "FAILED_PRECONDITION"
    assert f"{part} is of tiny 2.0, part v3, and {base} is the base of tiny 1.0" in done.json["error"]["message"]
    (site / "tiny/tiny.kb.parts").write_bytes(b"\xff\n")
    done = kbundle(*words)
    assert done.code == 1 and done.out == "" and f"reading {base}.parts" in done.err and "line 1" in done.err
