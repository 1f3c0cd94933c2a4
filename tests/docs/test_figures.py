"""Promise: a figure of docs/ is what the committed results give, shows what kbundle is slower at, is drawn for light and dark screens and shown on a
page in words too; a screen is what the command prints now, and a picture of the page as it is now."""

import html
import json
import pathlib
import re
import sys
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/figures"
sys.path.insert(0, str(FIGURES))
import draw  # noqa: E402
import screens  # noqa: E402

RESULTS = json.loads(draw.RESULTS.read_text())
SVGS = sorted(FIGURES.glob("*.svg"))
PICTURES = sorted(path for path in FIGURES.iterdir() if path.suffix in (".svg", ".png"))
MOST_BYTES = 150_000


@pytest.mark.parametrize("name", draw.figures())
def test_a_figure_is_what_the_committed_results_give(name):
    assert (FIGURES / name).read_text() == draw.figures()[name], "run docs/figures/draw.py"


def test_no_measured_problem_is_left_out_of_the_comparison():
    """By the ratios that the runs themselves wrote down, which draw.py does not read."""
    text = (FIGURES / "compared.svg").read_text()
    drawn = {(html.unescape(problem), float(ratio)) for problem, ratio in re.findall(r"<title>(.*): ([\d.]+)</title>", text)}
    count, tables = 0, {"speed": ("ratio",), "norm": ("ahead",), "cross_entropy": ("ahead",), "router": ("ahead",), "unlisted_attention": ("ahead",),
                        "quantize": ("ratio",)}
    for section, columns in tables.items():
        for table in RESULTS["sections"][section]["tables"]:
            for row in table["rows"] if table["head"][0] != "way" else ():
                found = [cell for name, cell in zip(table["head"], row) if name in columns and cell != "-"]
                for ratio in map(float, found):
                    count += 1
                    assert any(problem == row[0] and abs(ratio - other) < 0.011 * ratio + 0.005 for problem, other in drawn), (section, row)
    assert count > 200
    slower = text.count('class="open"') - 1  # the legend's
    assert slower == sum(int(n) for n in re.findall(r'x="940" y="[\d.]+" class="bad bold"[^>]*>(\d+)<', text)) > 10


def test_every_missed_bar_is_shown():
    words = [text.text for text in xml.etree.ElementTree.parse(FIGURES / "missed.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
    lost = [bar["name"] for section in RESULTS["sections"].values() for bar in section["bars"] if not bar["holds"]]
    assert lost and not [name for name in lost if not any(one.endswith(name) for one in words)]


def test_sizes_are_of_a_bundle_that_deltas_make_smaller():
    found = json.loads((FIGURES / "sizes.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{64}", found["content_id"]) and re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"]) and found["rows"]
    assert all(row["stored"] <= row["alone"] * 1.01 < row["raw"] for row in found["rows"])
    raw, alone, stored = (sum(row[name] for row in found["rows"]) / 1e6 for name in ("raw", "alone", "stored"))
    assert f"[{raw:.1f} MB raw, {alone:.1f} each alone, {stored:.1f} in the bundle]" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", SVGS, ids=lambda path: path.stem)
def test_an_svg_is_sound_asks_for_nothing_and_has_colours_for_light_and_dark(path):
    text = path.read_text()
    root = xml.etree.ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title").text
    assert "prefers-color-scheme: dark" in text and 'class="paper"' in text
    assert not re.search(r"<script|<image|href=|url\(|https?://(?!www\.w3\.org/2000/svg)", text)
    width, height = (float(root.get(name)) for name in ("width", "height"))
    for element in root.iter():
        for name, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            assert 0 <= float(element.get(name, 0)) <= most, (element.attrib, element.text)


def test_every_figure_is_small_and_shown_in_words_too():
    shown = {}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
            assert len(words) > 20, f"{page.name}: say what {target} shows, for who cannot see it"
            shown[(page.parent / target).resolve()] = page
    assert set(shown) == set(PICTURES)
    assert not [path.name for path in PICTURES if path.stat().st_size > MOST_BYTES]


def without_measurements(lines):
    return [re.sub(r"\d[\d.,]*(?= (?:s|bytes, \d)\b)|, [\d.]+ s$", "N", line) for line in lines]


def test_the_terminal_shows_what_the_command_prints_now(command):
    lines = screens.session(command)
    assert without_measurements(screens.lines_of((FIGURES / "terminal.svg").read_text())) == without_measurements(
        line for line in lines if line), "run docs/figures/screens.py"


def test_the_picture_of_a_bundle_was_taken_of_the_page_as_it_is():
    assert screens.note_of((FIGURES / "inspect.png").read_bytes()) == screens.template_hash(), \
        "builder/report/page.html has changed since: run docs/figures/screens.py BUNDLE"
