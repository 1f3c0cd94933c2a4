"""Promise: what decides a code object's bytes decides whether it is compiled again, or is refused with what to do instead."""

import pytest


@pytest.mark.parametrize("where, directive", [
    ("negate.cc", 'asm(".section .rodata\\nkdata: .incbin \\"data.bin\\"\\n.previous");\n'),
    ("rows.h", 'asm(R"(\n.include "data.s"\n)");\n'),
])
def test_files_that_the_assembler_reads_are_refused_by_name(kbundle, tiny, tmp_path, where, directive):
    """No compiler tells of them, so a change there went unseen."""
    source = tiny.parent / where
    source.write_text(source.read_text() + directive)
    (tiny.parent / "data.bin").write_text("abcd")
    (tiny.parent / "data.s").write_text("")
    done = kbundle.build(tiny, tmp_path / "x.kb")
    assert done.code == 1 and f"{source}:" in done.err and "header" in done.err, done.err


def test_words_of_comments_are_no_directives(kbundle, tiny, tmp_path):
    source = tiny.parent / "negate.cc"
    source.write_text("// not by .incbin, which is refused\n" + source.read_text())
    assert kbundle.build(tiny, tmp_path / "x.kb").code == 0
