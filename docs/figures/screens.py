#!/usr/bin/env python3
"""Makes the screens of this folder: terminal.svg, what the commands of docs/own-op-cuda.md print, and inspect.png, a bundle's page in a browser.

    docs/figures/screens.py BUNDLE [OP [TARGET]]   both; of the page that of BUNDLE, with OP opened (needs chromium: scripts/setup --docs)

tests/docs runs the commands again and compares. The picture notes which page.html it was taken of, so that a test can tell when that has changed.
"""

import hashlib
import html
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

from svg import Drawing

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE, TEMPLATE = ROOT / "docs/own-op-cuda.md", ROOT / "builder/report/page.html"
BLOCK = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
COMMAND = os.environ.get("KBUNDLE", ROOT / "build/release/kbundle")


def session(command):
    """What a terminal shows of the page's `kbundle build` and `kbundle explain`, run with the page's files and an empty cache."""
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        blocks = BLOCK.findall(PAGE.read_text())
        for _, name, text in blocks:
            if name:
                (pathlib.Path(folder) / name).write_text(text)
        environment = dict(os.environ, KBUNDLE_CACHE=f"{folder}/cache")
        for line in (line for language, _, text in blocks if language == "sh" for line in text.splitlines()):
            if line.startswith(("kbundle build", "kbundle explain")):
                words = [command, *line.split()[1:]]
                done = subprocess.run(words, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                shown += [f"$ {line}", *done.stdout.rstrip().splitlines(), ""]
    return shown[:-1]


def terminal(lines):
    drawing = Drawing(960, "kbundle build and kbundle explain in a terminal")
    for row, line in ((row, line) for row, line in enumerate(lines) if line):
        drawing.text(18, 32 + 18 * row, line, "code bold" if line.startswith("$ ") else "code")
    return drawing.svg(32 + 18 * len(lines))


def lines_of(svg):
    """The lines that terminal() drew, which leaves out empty ones."""
    return [html.unescape(line) for line in re.findall(r'<text [^>]*class="code[^>]*>(.*?)</text>', svg)]


def noted(png, note):
    """The PNG with the note as a text of it, behind its header."""
    chunk = b"tEXtpage.html\0" + note.encode()
    return png[:33] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[33:]


def note_of(png):
    length, kind = struct.unpack(">I4s", png[33:41])
    return png[41:41 + length].removeprefix(b"page.html\0").decode() if kind == b"tEXt" else ""


def template_hash():
    return hashlib.sha256(TEMPLATE.read_bytes()).hexdigest()


def picture(bundle, op="", target=""):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None) or sys.exit("screens: no chromium here: scripts/setup --docs installs it")
    page = subprocess.run([COMMAND, "inspect", bundle, "--html", "-"], check=True, stdout=subprocess.PIPE, text=True).stdout
    opened = f"""document.getElementById("target").value = "{target}";
        for (const one of document.querySelectorAll("#ops > details")) one.hidden = one.id !== "op {op}";
        const op = document.getElementById("op {op}"); op.open = true; op.ontoggle(); op.querySelector("details").open = true;
        document.getElementById("map").style.height = "280px"; draw("stored");"""
    with tempfile.TemporaryDirectory() as folder:
        place, picture = pathlib.Path(folder) / "page.html", pathlib.Path(folder) / "page.png"
        place.write_text(page.replace("</body>", f"<script>{opened if op else ''}</script></body>"))
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000",
                        f"--user-data-dir={folder}/profile", "--window-size=960,1020", f"--screenshot={picture}", place.as_uri()],
                       check=True, capture_output=True)
        return noted(picture.read_bytes(), template_hash())


def main(words):
    if not 1 <= len(words) <= 3 or words[0].startswith("-"):
        print(__doc__)
        return 0 if words == ["--help"] else 2
    (HERE / "terminal.svg").write_text(terminal(session(COMMAND)))
    (HERE / "inspect.png").write_bytes(picture(*words))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
