"""Promise: whatever bytes an author's file, folder or compiler holds, the command answers in UTF-8, and in JSON where that was asked for."""

import json
import sys

import pytest
from cli.tiny import write_cuda, write_tiny

LATIN = '// caf\xe9 gr\xfc\xdfe\nint x = "\xfc" + undeclared;\n'.encode("latin-1")


def run(kbundle, *arguments):
    """Exit code, standard output and standard error; what is no UTF-8 fails here."""
    process = kbundle.start(*arguments, env={"KBUNDLE_PYTHON": sys.executable})
    out, err = process.communicate(timeout=120)
    assert b"\0" not in out + err
    return process.returncode, out.decode(), err.decode()


def latin_source(folder):
    manifest = write_tiny(folder)
    source = manifest.parent / "negate.cc"
    source.write_bytes(source.read_bytes() + LATIN)
    return manifest


def test_a_manifest_in_latin_1_is_shown_and_told_to_be_utf_8(kbundle, tiny, tmp_path):
    tiny.write_bytes(tiny.read_bytes() + b'# caf\xe9\n')
    code, out, err = run(kbundle, "build", tiny, "-o", tmp_path / "o.kb", "--target", "x86-64-v2", "--json")
    assert code == 1 and "# caf\ufffd\n" in err and "TOML is UTF-8: save the file as that" in err
    assert "# caf\ufffd\n" in json.loads(out)["error"]["message"]


def test_a_manifest_in_utf_16_is_shown_and_told_to_be_utf_8(kbundle, tiny, tmp_path):
    tiny.write_bytes(tiny.read_text().encode("utf-16"))
    code, out, err = run(kbundle, "build", tiny, "-o", tmp_path / "o.kb", "--target", "x86-64-v2")
    assert code == 1 and "tiny.toml:1:1" in err and "TOML is UTF-8: save the file as that" in err


@pytest.mark.parametrize("write, source, target", [(write_tiny, "negate.cc", "x86-64-v2"), (write_cuda, "twice.cu", "sm_90a")])
def test_a_source_in_utf_16_is_told_to_be_utf_8(kbundle, tmp_path, write, source, target):
    """Half of its bytes are zero, and NVRTC took what is before the first for the whole."""
    path = write(tmp_path / "family").parent / source
    path.write_bytes(path.read_text().encode("utf-16"))
    code, out, err = run(kbundle, "build", path.parent, "-o", tmp_path / "o.kb", "--target", target)
    assert code == 1 and f"{source}: byte 3 is zero, so this is no text in UTF-8" in err


def test_a_compilers_words_on_a_source_in_latin_1_are_utf_8(kbundle, tmp_path):
    code, out, err = run(kbundle, "build", latin_source(tmp_path / "tiny"), "-o", tmp_path / "o.kb", "--target", "x86-64-v2")
    assert code == 1 and '"\ufffd" + undeclared' in err


@pytest.mark.parametrize("verb", ["test", "tune"])
def test_a_report_that_quotes_a_source_in_latin_1_is_json(kbundle, tmp_path, verb):
    code, out, err = run(kbundle, verb, latin_source(tmp_path / "tiny"), "--target", "host", "--json")
    assert code == 1 and "internal" not in err
    report = json.loads(out)
    messages = [one["message"] for one in report["variants" if verb == "test" else "failures"]]
    assert any('"\ufffd" + undeclared' in message for message in messages)


def test_a_folder_of_a_name_in_latin_1_is_no_end_of_the_command(kbundle, tmp_path):
    folder = tmp_path / "caf\udce9"
    manifest = write_tiny(folder)
    code, out, err = run(kbundle, "test", manifest, "--target", "host", "--json")
    assert code in (0, 1) and "internal" not in err
    json.loads(out)
