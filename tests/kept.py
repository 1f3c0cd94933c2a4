"""What passed is not done again while everything that it depends on is what it was: remembered in kbundle's cache, beside what
scripts/tidy.py remembers there, until nothing has asked for it for a month.

For tests that cost a minute and read nothing but files that they can name. Of a test that has not passed nothing is kept.
KB_TEST_ALL=1 does everything again.
"""

import hashlib
import json
import os
import pathlib
import time

MONTH_SECONDS = 30 * 24 * 3600


def folder():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("KBUNDLE_CACHE") or pathlib.Path(cache) / "kbundle") / "tests"


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Passed:
    """One thing to test, by what it is called and by texts that decide about it. Which files it reads is known once it has passed.

    Files below `root` are named relative to it, so that another checkout, or another temporary folder, knows what passed here.
    """

    def __init__(self, *texts, roots=()):
        self.stamp = folder() / hashlib.sha256(json.dumps([str(text) for text in texts]).encode()).hexdigest()
        self.roots = {f"{{{number}}}/": f"{root}/" for number, root in enumerate(roots)}

    def named(self, path):
        for name, root in self.roots.items():
            if str(path).startswith(root):
                return name + str(path)[len(root):]
        return str(path)

    def place(self, name):
        for short, root in self.roots.items():
            if name.startswith(short):
                return root + name[len(short):]
        return name

    def before(self):
        """Whether it has passed with these very files."""
        if os.environ.get("KB_TEST_ALL") == "1":
            return False
        try:
            read = json.loads(self.stamp.read_text())
            same = all(digest(self.place(name)) == content for name, content in read.items())
        except (OSError, ValueError):
            return False
        if same:
            self.stamp.touch()
        return same

    def now(self, files):
        """It has, and has read these."""
        self.stamp.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.stamp.with_name(f"{self.stamp.name}.{os.getpid()}")
        fresh.write_text(json.dumps({self.named(path): digest(path) for path in sorted(map(str, files))}))
        fresh.replace(self.stamp)
        for stamp in self.stamp.parent.iterdir():
            if stamp.stat().st_mtime < time.time() - MONTH_SECONDS:
                stamp.unlink(missing_ok=True)
