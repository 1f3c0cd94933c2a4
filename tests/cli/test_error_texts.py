"""Promise: `kbundle explain-error` knows every tag by name, number and from a pasted message, and says cause
and cure."""

import pathlib
import re

import pytest
from kbundle._errors import CODES

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNUSED = {"UNKNOWN", "ABORTED", "UNAUTHENTICATED"}  # of no message of ours


@pytest.mark.parametrize("number, tag", CODES.items())
def test_every_tag_is_explained(kbundle, number, tag):
    done = kbundle("explain-error", tag)
    assert done.code == 0 and done.out.startswith(f"{tag} ({number}): ")
    assert done.out == kbundle("explain-error", number).out == kbundle("explain-error", tag.lower().replace("_", "-")).out
    assert ("  cause  " in done.out and done.out.count("  cause  ") == done.out.count("  cure   ")) or tag in UNUSED


def test_a_pasted_message_is_enough(kbundle):
    pasted = "jaxlib._jax.XlaRuntimeError: INTERNAL: [kbundle:FAILED_PRECONDITION] launching a plan: its context is gone"
    assert kbundle("explain-error", pasted).out.startswith("FAILED_PRECONDITION (9): ")


def test_what_is_no_tag_is_refused_with_the_nearest(kbundle):
    done = kbundle("explain-error", "NOT_FUOND")
    assert done.code == 1 and "did you mean 'NOT_FOUND'" in done.err and not done.out
    for word in ("", "99", "-0", "\x00\x01", "[kbundle:", "%s%n", "x" * 100000):
        assert kbundle("explain-error", word.replace("\x00", "")).code in (0, 1, 2)


def test_json_has_all_that_the_text_has(kbundle):
    rows = kbundle("explain-error", "--json").json
    assert [row["code"] for row in rows] == sorted(CODES) and [row["tag"] for row in rows] == [CODES[row["code"]] for row in rows]
    everything = kbundle("explain-error").out
    for row in rows:
        for one in row["causes"]:
            assert one["cause"] in everything and one["cure"] in everything
            assert "|" not in one["cause"] + one["cure"]
    assert kbundle("explain-error", "NO_TAG", "--json").json["error"]["code"] == "NOT_FOUND"


def test_what_is_not_used_is_not_used_and_all_else_is():
    sources = "".join(path.read_text() for room in ("loader", "ffi", "builder", "schemas") for path in (ROOT / room).rglob("*.cc"))
    for number, tag in CODES.items():
        name = "".join(word.capitalize() for word in tag.split("_"))
        made = len(re.findall(rf"\b{name}\((?!\))", sources))
        assert (made == 0) == (tag in UNUSED), f"{tag}: {made} places make it"


def test_words_of_commands_in_cures_are_commands(kbundle):
    verbs = re.findall(r"^  ([a-z-]+) +[A-Z]", kbundle("--help").out, re.M)
    for row in kbundle("explain-error", "--json").json:
        for one in row["causes"]:
            for verb in re.findall(r"`kbundle ([a-z-]+)", one["cure"]):
                assert verb in verbs, one["cure"]
