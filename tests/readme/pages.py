"""What the pages show: fenced blocks, and commands in tables and in running text."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("README.md", "CONTRIBUTING.md", "builder/MANIFEST.md", "builder/AUTHORING.md", "docs/command.md", "docs/python.md")
FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
HEADING = re.compile(r"^## (.*)$", re.M)
SPAN = re.compile(r"`([^`\n]+)`")
PROGRAMS = ("kbundle ", "scripts/", "cmake ", "ctest ", "build/release/kbundle ", "build/release/tests/", ".venv/bin/python ", "python ",
            "pip ", "apt ")


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    name: str
    text: str
    place: str  # the section's heading and the block's number there, as "a_variant_2"

    def __str__(self):
        return f"{self.page}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Said:
    """A command: `whole` where it can be typed as it stands or is a form to fill in, else a mention in a sentence."""
    page: str
    line: int
    text: str
    whole: bool

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"


def text_of(page):
    return (ROOT / page).read_text()


def blocks(page):
    text, found, last = text_of(page), [], (None, 0)
    for m in FENCE.finditer(text):
        section = (HEADING.findall(text[:m.start()]) or ["top"])[-1]
        last = (section, last[1] + 1 if section == last[0] else 1)
        place = f"{re.sub(r'[^a-z]+', '_', section.lower())}_{last[1]}"
        found.append(Block(page, text.count("\n", 0, m.start()) + 1, *m.groups(), place))
    return found


def commands_in(block):
    """The commands of a shell block, without what stands behind # on their lines."""
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        line = re.sub(r"\s+# .*", "", line).strip()
        if line and not line.startswith("#"):
            yield Said(block.page, number, line, True)


def is_shell(block):
    return block.language == "sh" or (not block.language and block.text.startswith(PROGRAMS))


def said(page):
    """Every command of a page, in its order."""
    text = text_of(page)
    found = [one for block in blocks(page) if is_shell(block) for one in commands_in(block)]
    prose = FENCE.sub(lambda m: "\n" * m.group(0).count("\n"), text)
    for number, line in enumerate(prose.splitlines(), 1):
        cells = line.replace("\\|", "\0").split("|")
        for cell_number, cell in enumerate(cells):
            first = len(cells) > 2 and (cell_number == 1 or (cell_number == 2 and page == "CONTRIBUTING.md"))
            for place, span in enumerate(SPAN.findall(cell.replace("\0", "|"))):
                if span.startswith(PROGRAMS):
                    found.append(Said(page, number, span, first and place == 0))
    return sorted(found, key=lambda one: one.line)
