"""Promise: whatever is wrong with a manifest or a source, the command names the file, the line and what to do, and never crashes."""

import re
import subprocess

import pytest
from cli.tiny import MANIFEST, NEGATE
from cli.wrong_manifests import LINE, MANIFESTS, SOURCES


def changed(tiny, change):
    if callable(change):
        change(tiny.parent)
    elif isinstance(change, bytes):
        tiny.write_bytes(change)
    elif isinstance(change, str):
        tiny.write_text(change)
    else:
        text = MANIFEST
        for before, after in change:
            assert before in text, before
            text = text.replace(before, after)
        tiny.write_text(text)


def refused(kbundle, tiny, place, words):
    done = kbundle("build", tiny, "-o", tiny.parent / "tiny.kb", "--target", "x86-64-v3", timeout=60)
    assert done.code == 1, (done.code, done.err)
    assert re.search(place, done.err), done.err
    assert all(re.search(word, done.err) if "|" in word else word in done.err for word in words), done.err
    assert len(done.err) < 60_000
    assert not (tiny.parent / "tiny.kb").exists()
    return done


@pytest.mark.parametrize("change, place, words", [case[1:] for case in MANIFESTS], ids=[case[0] for case in MANIFESTS])
def test_a_wrong_manifest_is_refused_at_its_place_with_a_cure(kbundle, tiny, change, place, words):
    changed(tiny, change)
    refused(kbundle, tiny, place, words)


@pytest.mark.parametrize("change, place, words", [case[1:] for case in SOURCES], ids=[case[0] for case in SOURCES])
def test_what_a_compiler_finds_is_told_at_its_place(kbundle, tiny, change, place, words):
    changed(tiny, change)
    refused(kbundle, tiny, place, words)


@pytest.mark.parametrize("text", [MANIFEST.replace("\n", "\r\n"), "\ufeff" + MANIFEST], ids=["CRLF", "a byte order mark"])
def test_what_editors_add_is_taken(kbundle, tiny, text):
    tiny.write_bytes(text.encode())
    assert kbundle("build", tiny, "-o", tiny.parent / "tiny.kb", "--target", "x86-64-v3").code == 0


def test_the_command_that_shows_a_missing_kernel_again_fails_again(kbundle, tiny):
    changed(tiny, [("negate_{T}", "negat_{T}")])
    done = kbundle("build", tiny, "-o", tiny.parent / "tiny.kb", "--target", "x86-64-v3")
    [command] = re.findall(r"^to see it again: kbundle (.*)$", done.err, re.M)
    assert "-o" not in command.split(), "it writes nothing, and nowhere"
    again = subprocess.run(f"{kbundle.path} {command}", shell=True, capture_output=True, text=True, timeout=60,
                           env=kbundle.environment)
    assert again.returncode == 1 and "'negat_i32'" in again.stderr


def test_one_misspelled_key_is_one_error(kbundle, tiny):
    changed(tiny, [("operands   = {", "operand    = {")])
    done = kbundle("build", tiny, "-o", tiny.parent / "tiny.kb", "--target", "x86-64-v3")
    assert len(re.findall(LINE, done.err)) == 1 and "did you mean 'operands'?" in done.err, done.err
    changed(tiny, [("attributes = {", "attribute  = {")])
    done = kbundle("build", tiny, "-o", tiny.parent / "tiny.kb", "--target", "x86-64-v3")
    assert len(re.findall(LINE, done.err)) == 1 and "did you mean 'attributes'?" in done.err, done.err


def test_one_mistake_in_a_source_of_many_kernels_is_told_once(kbundle, tiny):
    (tiny.parent / "negate.cc").write_text(NEGATE.replace("-x[i]", "-q[i]"))
    done = kbundle("build", tiny, "-o", tiny.parent / "tiny.kb", "--keep-going", "-j", "1",
                   "--target", "x86-64-v2,x86-64-v3,x86-64-v4")
    assert done.err.count("'q' was not declared") == 1, done.err
    assert "the same in 2 more of its compilations" in done.err


def test_a_file_given_twice_is_one_family(kbundle, tiny, tmp_path):
    twice = [tiny, tiny.parent / "." / "tiny.toml", f"{tiny.parent}/./tiny.toml", tiny.parent]
    assert kbundle("build", *twice, "-o", tmp_path / "x.kb", "--target", "x86-64-v3").code == 0


def test_targets_that_exist_are_named_where_none_of_them_was_asked_for(kbundle, tiny, tmp_path):
    done = kbundle("build", tiny, "-o", tmp_path / "x.kb", "-t", "sm_90")
    assert done.code == 1 and "--target sm_90" in done.err and "x86-64-v2, x86-64-v3, x86-64-v4" in done.err


def test_a_family_behind_a_link_includes_what_lies_beside_it(kbundle, tiny, tmp_path):
    real = tmp_path / "real" / "deep"
    real.mkdir(parents=True)
    tiny.parent.rename(real / "tiny")
    (real / "beside.h").write_text("#define BESIDE 1\n")
    source = real / "tiny" / "negate.cc"
    source.write_text('#include "../beside.h"\n#if BESIDE\n' + NEGATE + "#endif\n")
    (tmp_path / "link").symlink_to(real / "tiny")
    done = kbundle("build", tmp_path / "link" / "tiny.toml", "-o", tmp_path / "x.kb", "--target", "x86-64-v3")
    assert done.code == 0, done.err


def test_clang_is_named_as_no_compiler_of_host_kernels(kbundle, tiny, tmp_path):
    clang = tmp_path / "clang++-19"
    clang.write_text("#!/bin/sh\nexec c++ \"$@\"\n")
    clang.chmod(0o755)
    done = kbundle("build", tiny, "-o", tmp_path / "x.kb", "--target", "x86-64-v3", env={"KBUNDLE_CXX": str(clang)})
    assert done.code == 3 and "g++" in done.err and "clang++-19" in done.err
