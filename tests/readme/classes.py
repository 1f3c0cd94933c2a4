"""How each command and each block of the pages is held to work: the first class that it fits.

Each class of commands has a check in test_commands.py, each class of blocks where BLOCKS says. What fits none fails a test, so that nothing
slips in unchecked.
"""

import re

import pages

# Class, the test that holds it, and which blocks are of it: page, language, name, text, as patterns that must fit whole ("" of none).
BLOCKS = (
    ("library", "test_authoring.py", (r"builder/AUTHORING\.md", r"\w+", r".+", r".*")),
    ("commands", "test_commands.py", (r".*", r"(sh)?", r"", rf"({'|'.join(map(re.escape, pages.PROGRAMS))}).*")),
    ("python", "test_python_blocks.py", (r"README\.md", r"python", r"", r".*")),
    ("cute", "test_python_blocks.py", (r"builder/AUTHORING\.md", r"python", r"", r"def scale.*")),
    ("functions", "test_python_blocks.py", (r"docs/python\.md", r"python", r"", r".*")),
    ("tree", "test_blocks.py", (r"CONTRIBUTING\.md", r"", r"", r"schemas/ .*")),
    ("framed", "test_manifest_blocks.py", (r"builder/MANIFEST\.md", r"toml", r"", r".*")),
    ("lines", "test_manifest_blocks.py", (r"builder/MANIFEST\.md", r"json", r"", r".*")),
    ("header", "test_manifest_blocks.py", (r"builder/MANIFEST\.md", r"cpp", r"", r"struct ScoreArgs .*")),
    ("kernel", "test_manifest_blocks.py", (r"builder/MANIFEST\.md", r"cpp", r"", r'#include "kbundle/host_kernel\.h".*')),
    ("reference", "test_manifest_blocks.py", (r"builder/MANIFEST\.md", r"python", r"", r".*")),
)

CLASSES = (
    # Needs no device, and its answer about this tree belongs to scripts/check: run, and understood (0 or 1).
    ("answers", r"kbundle (tune --(check|revalidate)\b|verify .*--strict)"),
    # Run as it stands, without a GPU, in the order of the page; a form has its capitals filled in. Must answer 0.
    ("run", r"kbundle (new|completion|man|build|inspect|verify|explain|extract|doctor|schema|cache)\b"),
    # Needs a GPU: read by the command's own parser here, which then finds no device; run by section `page_commands` of scripts/gpu_check.
    ("gpu", r"kbundle (tune|test|algorithms|profile|specialize)\b"),
    # Runs others of this list, or takes longer than a test may: continuous integration runs these two before this test.
    ("ci", r"scripts/(demo|check)$"),
    # A part of scripts/check, run there with these words.
    ("step", r"build/release/kbundle build kernels -o build/kernels\.kb$|scripts/setup( --check)?$|scripts/format$"),
    # Too long for a test, or another build: presets, targets, tests and filters that it names must exist.
    ("names", r"cmake --preset |build/release/tests/\w+ --gtest_filter=|\.venv/bin/python -m pytest "),
    # A script with its own self-explanation: must be there, and say what it does with --help or --list.
    ("script", r"scripts/(gpu_check|fresh|fuzz|soak|lean_check|wheel|docs)\b|scripts/setup --(aarch64|docs|jax-tvm-ffi|torch|warp|wheel)$"),
    # Takes minutes of a quiet machine: must be there and compile.
    ("program", r"\.venv/bin/python scripts/\w+\.py$"),
    # Fetches packages: they must be those that this environment has.
    ("install", r"python -m pip install "),
    # A file or package that is named, not a command.
    ("file", r"scripts/[\w./-]+$"),
)


def block_class_of(block):
    for name, _, patterns in BLOCKS:
        parts = (block.page, block.language, block.name or "", block.text)
        if all(re.fullmatch(pattern, part, re.S) for pattern, part in zip(patterns, parts)):
            return name
    return None


def class_of(said):
    """A mention of kbundle in a sentence is checked for its words; everything else by the list."""
    if said.page == "builder/AUTHORING.md" and said.whole:
        return "road"  # test_authoring.py runs them together
    if not said.whole and re.match(r"(build/release/)?kbundle ", said.text):
        return "mention"
    for name, pattern in CLASSES:
        if re.match(pattern, said.text):
            return name
    return None
