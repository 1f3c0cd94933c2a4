"""How each command of the pages is held to work: the first class whose pattern it matches.

Each class has a check in test_commands.py. A command that matches none fails there, so that none slips in unchecked.
"""

import re

CLASSES = (
    # Needs no device, and its answer about this tree belongs to scripts/check: run, and understood (0 or 1).
    ("answers", r"kbundle (tune --(check|revalidate)\b|verify .*--strict)"),
    # Run as it stands, without a GPU, in the order of the page; a form has its capitals filled in. Must answer 0.
    ("run", r"kbundle (build|inspect|verify|explain|extract|bench|doctor)\b|python -c 'import model"),
    # Needs a GPU: read by the command's own parser here, which then finds no device; run by section `page_commands` of scripts/gpu_check.
    ("gpu", r"kbundle (tune|test|algorithms|profile)\b"),
    # Runs others of this list, or takes longer than a test may: continuous integration runs these two before this test.
    ("ci", r"scripts/(demo|check)$"),
    # A part of scripts/check, run there with these words.
    ("step", r"build/release/kbundle build kernels -o build/kernels\.kb$|scripts/setup$|scripts/format$"),
    # Too long for a test, or another build: presets, targets, tests and filters that it names must exist.
    ("names", r"cmake --preset |build/release/tests/\w+ --gtest_filter=|\.venv/bin/python -m pytest "),
    # A script with its own self-explanation: must be there, and say what it does with --help or --list.
    ("script", r"scripts/(gpu_check|fresh|fuzz|soak)\b"),
    # Takes minutes of a quiet machine: must be there and compile.
    ("program", r"\.venv/bin/python scripts/\w+\.py$"),
    # A file or package that is named, not a command.
    ("file", r"scripts/[\w./-]+$"),
)


def class_of(said):
    """A mention of kbundle in a sentence is checked for its words; everything else by the list."""
    if not said.whole and re.match(r"(build/release/)?kbundle ", said.text):
        return "mention"
    for name, pattern in CLASSES:
        if re.match(pattern, said.text):
            return name
    return None
