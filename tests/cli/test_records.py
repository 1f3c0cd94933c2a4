"""Promise: a build embeds the winners of committed records and nothing else about them changes: the very problem gets its
winner, an unseen one that of its nearest, stale and foreign records decide nothing, damaged ones are errors by line."""

import json
import pathlib
import sys

import pytest

MANIFEST = """\
[family]
name      = "twice"
reference = "reference.py"

[op.copy]
operands    = { x = "f32[N]" }
results     = { y = "f32[N]" }
attributes  = { room = { type = "int", default = 64 } }
coordinates = ["N", "room"]
tolerance   = 0
problems    = [{ x = [4096] }, { x = [65536] }]
"""

VARIANT = """
[[op.copy.variant]]
name     = "%(name)s"
provider = "host"
source   = "%(name)s.cc"
steps    = [{ kernel = "copy", range = "N", grain = "1000000000", args = ["y", "x"] }]
"""

SOURCE = """\
#include "kbundle/host_kernel.h"
static void Copy(int64_t begin, int64_t end, float* y, const float* x) {
  for (int repeat = 0; repeat < %d; ++repeat) {
    for (int64_t i = begin; i < end; ++i) y[i] = x[i];
    asm volatile("" ::: "memory");
  }
}
KB_HOST_KERNEL(copy, Copy)
"""


class Family:
    """Two variants, of which the second is far faster, tuned on this CPU."""

    def __init__(self, folder, kbundle):
        self.kbundle, self.folder = kbundle, folder
        folder.mkdir()
        self.manifest = folder / "twice.toml"
        self.manifest.write_text(MANIFEST + "".join(VARIANT % {"name": name} for name in ("slow", "fast")))
        (folder / "slow.cc").write_text(SOURCE % 40)
        (folder / "fast.cc").write_text(SOURCE % 1)
        (folder / "reference.py").write_text("def copy(x, *, room):\n    return x\n")
        done = kbundle("tune", self.manifest, "--target", "host", "--json", env={"KBUNDLE_PYTHON": sys.executable})
        assert done.code == 0, done.err
        [self.records] = (folder / "tuning").glob("*.jsonl")
        self.target = json.loads(self.records.read_text().splitlines()[0])["target"]

    def build(self, name="twice.kb", *arguments):
        output = self.folder / name
        done = self.kbundle("build", self.manifest, "-o", output, "--target", self.target, "--name", "twice", *arguments)
        return done, output

    def chosen(self, bundle, size, room=64):
        done = self.kbundle("explain", bundle, "twice.copy", "--operand", f"x=f32[{size}]", "--attr", f"room={room}",
                            "--target", self.target)
        assert done.code == 0, done.err
        [line] = [line for line in done.out.splitlines() if line.startswith("chosen")]
        return line, done.out


@pytest.fixture
def family(kbundle, tmp_path):
    return Family(tmp_path / "twice", kbundle)


def test_the_winner_is_embedded_and_the_nearest_decides_for_unseen_problems(family):
    done, bundle = family.build()
    assert done.code == 0, done.err
    exact, text = family.chosen(bundle, 4096)
    assert "twice.copy/fast" in exact and "tuned" in text
    assert "twice.copy/slow" in text and "us" in text
    nearest, text = family.chosen(bundle, 5000)
    assert "twice.copy/fast" in nearest and "nearest" in text and "4096" in text
    assert "nearest" in family.chosen(bundle, 4096, room=128)[0]  # an attribute that is a coordinate is bridged as well
    family.records.rename(family.folder / "elsewhere")
    done, bundle = family.build("untuned.kb")
    assert "twice.copy/slow" in family.chosen(bundle, 4096)[0]


def test_the_same_records_give_the_same_bytes(family):
    first = family.build("first.kb")[1].read_bytes()
    lines = family.records.read_text().splitlines(keepends=True)
    family.records.write_text("".join(reversed(lines)))
    assert family.build("second.kb")[1].read_bytes() == first
    assert family.kbundle("verify", family.folder / "first.kb").code == 0


def test_a_record_of_code_that_changed_decides_nothing_and_is_noted(family):
    (family.folder / "fast.cc").write_text(SOURCE % 2)
    done, bundle = family.build("stale.kb", "--explain")
    assert done.code == 0 and "left out" in done.out + done.err and "tune again" in done.out + done.err
    plain = family.build("stale.kb", "--json")[0]
    assert plain.json["stale_records"] == 2 and "2 tuning records were left out" in plain.err
    assert "2 tuning records" in plain.json["warnings"][0]
    strict = family.kbundle("verify", bundle, "--strict", "--json")
    assert strict.code == 1 and [row for row in strict.json["missing"] if row["what"] == "stale"]
    assert family.kbundle("verify", bundle).code == 0
    assert "twice.copy/slow" in family.chosen(bundle, 4096)[0]


def test_a_record_of_another_target_is_passed_over(family):
    text = family.records.read_text().replace(family.target, "sm_90a")
    family.records.write_text(text)
    done, bundle = family.build("foreign.kb")
    assert done.code == 0, done.err
    assert "twice.copy/slow" in family.chosen(bundle, 4096)[0]


@pytest.mark.parametrize("damage, wanted", [
    (lambda line: line[:80] + "\n", "JSON"),
    (lambda line: "<<<<<<< ours\n" + line, "merge"),
    (lambda line: json.dumps(change(line, lambda c: c["candidates"][0].update(us=[-1.0, 2.0, 3.0]))) + "\n", "us"),
    (lambda line: line.replace('"us"', '"uz"', 1), 'no "us"'),
    (lambda line: json.dumps(change(line, lambda r: r.update(winner="twice.copy/none@sm_90a"))) + "\n", "no candidate"),
])
def test_a_damaged_record_is_an_error_with_file_line_and_advice(family, damage, wanted):
    lines = family.records.read_text().splitlines(keepends=True)
    family.records.write_text(lines[0] + damage(lines[1]))
    done, bundle = family.build("damaged.kb")
    assert done.code != 0 and not bundle.exists()
    assert f"{family.records.name}:2" in done.err and wanted in done.err


def change(line, edit):
    record = json.loads(line)
    edit(record)
    return record


def test_a_copied_file_of_records_is_refused(family):
    copy = family.records.with_name("copy.jsonl")
    copy.write_text(family.records.read_text().splitlines(keepends=True)[1])
    done, bundle = family.build("twice.kb")
    assert done.code != 0 and copy.name in done.err and family.records.name in done.err and "delete" in done.err


def test_revalidating_keeps_the_winner_that_still_wins_and_leaves_the_others_as_they_were(family):
    """Another compiler's code is a changed source here; both variants change, as they would then."""
    for name, repeat in {"slow": 40, "fast": 1}.items():
        (family.folder / f"{name}.cc").write_text((SOURCE % repeat).replace("{ y[i] = x[i]; }", "y[i] = x[i];").replace(
            'asm volatile("" :::', 'asm volatile("nop" :::'))
    assert family.build("stale.kb", "--json")[0].json["stale_records"] == 2
    line = ["tune", family.manifest, "--revalidate", "--target", "host", "--json"]
    done = family.kbundle(*line, env={"KBUNDLE_PYTHON": sys.executable})
    assert done.code == 0 and done.json["revalidated"] == 2, done.err
    for row in family.records.read_text().splitlines():
        assert "measured again" in json.loads(row)["reason"] and json.loads(row)["winner"].startswith("twice.copy/fast")
    again = family.build("fresh.kb", "--json")[0]
    assert again.json["stale_records"] == 0 and again.json["warnings"] == []
    assert "twice.copy/fast" in family.chosen(family.folder / "fresh.kb", 4096)[0]
    assert family.kbundle("tune", family.manifest, "--check", env={"KBUNDLE_PYTHON": sys.executable}).code == 0
    idle = family.kbundle(*line, env={"KBUNDLE_PYTHON": sys.executable})
    assert idle.code == 0 and idle.json["problems"] == 0


def test_revalidating_gives_up_a_winner_that_wins_no_more(family):
    before = family.records.read_text()
    (family.folder / "fast.cc").write_text(SOURCE % 80)
    done = family.kbundle("tune", family.manifest, "--revalidate", "--target", "host",
                          env={"KBUNDLE_PYTHON": sys.executable})
    assert done.code == 1 and "does not win any more" in done.err and family.records.read_text() == before
