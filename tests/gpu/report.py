"""What one section of the GPU check found: bars met or missed, facts, tables; as text and as JSON."""

import json
import os
import sys


class Report:
    def __init__(self, title):
        self.title, self.bars, self.facts, self.tables = title, [], {}, []

    def bar(self, name, found, limit, unit="", at_least=False):
        """Holds when found <= limit (or >= with at_least)."""
        holds = bool(found >= limit if at_least else found <= limit)
        self.bars.append({"name": name, "found": found, "limit": limit, "unit": unit, "at_least": at_least,
                          "holds": holds})
        sign = ">=" if at_least else "<="
        print(f"{'ok  ' if holds else 'MISS'} {name}: {_short(found)} {unit} (bar {sign} {_short(limit)})", flush=True)
        return holds

    def hold(self, name, holds, why=""):
        """A bar that is yes or no."""
        self.bars.append({"name": name, "found": bool(holds), "limit": True, "unit": "", "at_least": True,
                          "holds": bool(holds), "why": why})
        print(f"{'ok  ' if holds else 'MISS'} {name}{': ' + why if why and not holds else ''}", flush=True)
        return holds

    def fact(self, name, value):
        self.facts[name] = value
        print(f"     {name}: {value}", flush=True)

    def table(self, title, head, rows):
        self.tables.append({"title": title, "head": head, "rows": rows})
        widths = [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]
        print(f"-- {title}")
        for row in [head, *rows]:
            print("  ".join(str(c).ljust(w) if i == 0 else str(c).rjust(w)
                            for i, (c, w) in enumerate(zip(row, widths))))
        sys.stdout.flush()

    def finish(self):
        path = os.environ.get("KB_RESULT")
        if path:
            with open(path, "w") as out:
                json.dump({"title": self.title, "bars": self.bars, "facts": self.facts, "tables": self.tables}, out)
        sys.exit(0 if all(b["holds"] for b in self.bars) else 1)


def _short(value):
    return f"{value:.4g}" if isinstance(value, float) else value
