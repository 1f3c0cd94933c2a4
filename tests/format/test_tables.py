"""Promise: the numbers in FORMAT.md are those of schemas/, and a number that changed is noticed."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(page):
    return subprocess.run([sys.executable, ROOT / "scripts/format_tables.py", "--check", "--page", page],
                          capture_output=True, text=True)


def test_the_page_has_the_numbers_of_the_headers():
    ran = check(ROOT / "schemas/FORMAT.md")
    assert ran.returncode == 0, ran.stderr


def test_another_number_is_an_error_that_names_the_cure(tmp_path):
    page = tmp_path / "FORMAT.md"
    page.write_text((ROOT / "schemas/FORMAT.md").read_text().replace("| 12 | f32 | 4 |", "| 12 | f32 | 8 |"))
    ran = check(page)
    assert ran.returncode == 1 and "run scripts/format_tables.py" in ran.stderr


@pytest.mark.parametrize("table", ["Index", "Template"])
def test_the_loader_looks_at_every_field_of_a_table_that_it_verifies_in_parts(table):
    """A field of bundle.fbs that structure.cc does not name would be read without having been verified."""
    body = re.search(rf"^table {table} \{{(.*?)^\}}", (ROOT / "schemas/bundle.fbs").read_text(), re.M | re.S)[1]
    fields = re.findall(r"\b(\w+):", re.sub(r"//.*", "", body))
    code = (ROOT / "loader/verify/structure.cc").read_text()
    assert len(fields) >= 12
    owner = {"Index": "fb::Index", "Template": "T"}[table]
    assert not [name for name in fields if not re.search(rf"\b{owner}::VT_{name.upper()}\b", code)]
