"""What passed is not done again while everything that it depends on is what it was: remembered in kbundle's cache, beside what
scripts/tidy.py remembers there, until nothing has asked for it for a month.

For tests that read nothing but files that they can name, and for whole files of tests (kept_files.py). Of a test that has not passed nothing
is kept. KB_TEST_ALL=1 does everything again.
"""

import hashlib
import json
import os
import pathlib
import time

MONTH_SECONDS = 30 * 24 * 3600
PROPERTY = "kept", "passed before with the very same inputs"  # of a test that was not run for it
CACHES = "__pycache__"  # written by whoever comes first, and no part of what a folder holds


def folder():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("KBUNDLE_CACHE") or pathlib.Path(cache) / "kbundle") / "tests"


def digest(path):
    """Of a file's bytes; of a folder's names."""
    path = pathlib.Path(path)
    content = "\n".join(sorted(set(os.listdir(path)) - {CACHES})).encode() if path.is_dir() else path.read_bytes()
    return hashlib.sha256(content).hexdigest()


class Passed:
    """One thing to test, by what it is called and by texts that decide about it. Which files it reads is known once it has passed.

    Files below `root` are named relative to it, so that another checkout, or another temporary folder, knows what passed here.
    """

    def __init__(self, *texts, roots=()):
        self.stamp = folder() / hashlib.sha256(json.dumps([str(text) for text in texts]).encode()).hexdigest()
        self.roots = {f"{{{number}}}/": f"{root}/" for number, root in enumerate(roots)}
        self.about = None  # what now() was told, once before() has said yes

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

    def before(self, digest=digest):
        """Whether it has passed with these very files."""
        if os.environ.get("KB_TEST_ALL") == "1":
            return False
        try:
            kept = json.loads(self.stamp.read_text())
            same = all(digest(self.place(name)) == content for name, content in kept["read"].items())
        except (OSError, ValueError, LookupError, TypeError, AttributeError):  # none, or of another form
            return False
        if same:
            self.about = kept["about"]
            self.stamp.touch()
        return same

    def now(self, files, about=None, digest=digest):
        """It has, and has read these: files, or folders of which it has seen the names. `about` is for the next one who asks."""
        self.stamp.parent.mkdir(parents=True, exist_ok=True)
        read = {self.named(path): digest(path) for path in sorted(map(str, files))}
        fresh = self.stamp.with_name(f"{self.stamp.name}.{os.getpid()}")
        fresh.write_text(json.dumps({"read": read, "about": about}))
        fresh.replace(self.stamp)
        for stamp in self.stamp.parent.iterdir():
            if stamp.stat().st_mtime < time.time() - MONTH_SECONDS:
                stamp.unlink(missing_ok=True)
