"""The numbers of FORMAT.md's own section 12: what is stored as which number."""

import re


class Numbers:
    """`of("StepKind")` gives names by number; `kStepKind` style names as the page has them."""

    def __init__(self, page):
        section = page[page.index("## 12."):]
        self._tables = {}
        for title, rows in re.findall(r"^\*\*(\w+)\*\*\n\n(?:\|.*\n){2}((?:\|.*\n)+)", section, re.M):
            cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows.splitlines()]
            self._tables[title] = {int(row[0]): row[1:] for row in cells}

    def name(self, table, number):
        return self._tables[table][number][0]

    def number(self, table, name):
        return next(number for number, row in self._tables[table].items() if row[0] == name)

    def dtype_bytes(self, dtype):
        return int(self._tables["DType"][dtype][1])

    def names(self, table):
        return [row[0] for _, row in sorted(self._tables[table].items())]
