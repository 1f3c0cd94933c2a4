"""Promise: `kbundle inspect --html` writes one file that needs nothing else, says what inspect and explain say, and executes nothing of
the bundle."""

import html.parser
import json
import re
import shutil
import subprocess

import pytest

OUTSIDE = re.compile(r"""https?://|@import|url\(|\bfetch\(|XMLHttpRequest|innerHTML|document\.write|\beval\(""")


class Elements(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.data = [], [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "input", "br"):
            self.open.append((tag, dict(attributes).get("id")))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop()[0] == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.open:
            self.data[self.open[-1]] = self.data.get(self.open[-1], "") + data


def page_of(kbundle, bundle):
    done = kbundle("inspect", bundle, "--html", "-")
    assert done.code == 0 and not done.err
    return done.out


def data_of(page):
    return json.loads(Elements(page).data["script", "bundle"])


def test_it_is_sound_and_asks_for_nothing(kbundle, bundle):
    page = page_of(kbundle, bundle)
    elements = Elements(page)
    assert not elements.open and page.isascii() or "·" in page
    for tag, attributes in elements.found:
        assert "src" not in attributes and attributes.get("href", "data:,") == "data:,", tag
    program = elements.data["script", None] + elements.data["style", None]
    assert not OUTSIDE.search(program)
    assert any("default-src 'none'" in attributes.get("content", "") for tag, attributes in elements.found if tag == "meta")


def test_it_says_what_inspect_and_explain_say(kbundle, bundle):
    data, described = data_of(page_of(kbundle, bundle)), kbundle("inspect", bundle, "--json").json
    assert (data["name"], data["content_id"], data["provenance"]) == tuple(described[key] for key in ("name", "content_id", "provenance"))
    assert sum(blob["stored"] for blob in data["blobs"]) == sum(blob["stored_bytes"] for blob in described["blobs"])
    for op, whole in zip(data["ops"], described["ops"], strict=True):
        assert [one["id"] for one in op["variants"]] == [one["id"] for one in whole["variants"]]
        assert op["problems"] == [one["text"] for one in whole["problems"]]
        targets = {one["target"] for one in whole["variants"]}
        assert {(one["problem"], one["target"]) for one in op["choices"]} == {(i, t) for i in range(len(op["problems"])) for t in targets}
        ids = {one["id"] for one in whole["variants"]}
        assert all(one["chosen"] in ids for one in op["choices"])
        for one in op["variants"]:
            assert all(0 <= at < len(data["blobs"]) for at in one["blobs"])


def test_the_same_bundle_gives_the_same_bytes_and_files_are_not_overwritten_by_accident(kbundle, bundle, tmp_path):
    page = tmp_path / "page.html"
    for _ in range(2):
        assert kbundle("inspect", bundle, "--html", page).code == 0
        assert page.read_text() == page_of(kbundle, bundle)
    page.write_text("a diary")
    done = kbundle("inspect", bundle, "--html", page)
    assert done.code == 1 and "--force" in done.err and page.read_text() == "a diary"
    assert kbundle("inspect", bundle, "--html", page, "--force").code == 0 and page.read_text() != "a diary"
    assert kbundle("inspect", bundle, "--html", page, "--json").code == 2
    assert kbundle("inspect", bundle, "--html", tmp_path / "no/where.html").code == 1


def test_texts_of_the_bundle_cannot_leave_their_place(kbundle, tiny, tmp_path):
    hostile = "</script><script>document.title='owned'</script>"
    changed, count = re.subn(r'summary( *)= "[^"]*"', lambda m: f'summary{m[1]}= "{hostile}"', tiny.read_text())
    assert count
    tiny.write_text(changed)
    assert kbundle.build(tiny, tmp_path / "hostile.kb").code == 0
    page = page_of(kbundle, tmp_path / "hostile.kb")
    assert hostile not in page and hostile in [op["summary"] for op in data_of(page)["ops"]]


@pytest.fixture
def drawn(tmp_path):
    """A page's elements once its program has run in a browser, in a window so wide: drawn(page, width)."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("no chromium here: scripts/setup --docs installs it")

    def draw(page, width=1200):
        place = tmp_path / "page.html"
        place.write_text(page)
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", f"--window-size={width},900",
                               f"--user-data-dir={tmp_path}/profile", "--dump-dom", place.as_uri()], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "<title>" in done.stdout, done.stderr[-2000:]
        return done.stdout
    return draw


def with_script(page, program):
    """The page, doing this after its own program; what it leaves in `said` is an attribute of the root."""
    return page.replace("</body>", f"<script>let said; {program}; document.documentElement.dataset.said = said;</script></body>")


def test_a_browser_draws_it(kbundle, bundle, drawn):
    found = drawn(page_of(kbundle, bundle))
    assert "<title>kbundle: tiny</title>" in found
    assert found.count('title="tiny.scale, ') >= 1 and found.count("<details") == 2


def test_an_op_that_is_opened_shows_its_variants_of_the_target_that_is_chosen(kbundle, bundle, drawn):
    page, [first, *_] = page_of(kbundle, bundle), kbundle("inspect", bundle, "--json").json["ops"]
    targets = sorted({one["target"] for one in first["variants"]})
    program = f"""const op = document.getElementById("op {first['name']}"), choose = document.getElementById("target");
        const rows = () => [...op.querySelectorAll("tbody")].pop().rows.length;
        op.open = true; op.ontoggle(); said = [rows()];
        for (const name of {targets}) {{ choose.value = name; choose.onchange(); said.push(rows()); }}"""
    found = re.search(r'data-said="([\d,]+)"', drawn(with_script(page, program)))
    counts = [sum(one["target"] == name for one in first["variants"]) for name in targets]
    assert found and found[1] == ",".join(map(str, [sum(counts), *counts]))


def test_nothing_sticks_out_of_a_narrow_window(kbundle, bundle, drawn):
    program = """for (const op of document.querySelectorAll("#ops > details")) { op.open = true; op.ontoggle(); }
        said = document.documentElement.scrollWidth - innerWidth"""
    assert re.search(r'data-said="(-\d+|0)"', drawn(with_script(page_of(kbundle, bundle), program), width=500))
