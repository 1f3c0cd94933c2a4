"""How the tests run the command: as a user would, in a clean environment, with a time limit."""

import dataclasses
import json
import os
import pathlib
import subprocess

HOST_TARGETS = "x86-64-v2,x86-64-v3"


@dataclasses.dataclass
class Finished:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Command:
    """Runs kbundle. The environment is made, not inherited: what the command reads is what a test sets."""

    def __init__(self, path, cache, home):
        self.path = path
        temporary = pathlib.Path(home) / "tmp"  # what a killed command leaves goes when the test's folder goes
        temporary.mkdir(parents=True, exist_ok=True)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(temporary), "KBUNDLE_CACHE": str(cache),
                            "TERM": "xterm"}

    def __call__(self, *arguments, env=None, cwd=None, timeout=120, **more):
        done = subprocess.run([self.path, *map(str, arguments)], env=self.environment | (env or {}), cwd=cwd,
                              capture_output=True, timeout=timeout, **more)
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace"))

    def start(self, *arguments, env=None, **more):
        return subprocess.Popen([self.path, *map(str, arguments)], env=self.environment | (env or {}),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def build(self, manifest, output, *arguments, **more):
        return self("build", manifest, "-o", output, "--target", HOST_TARGETS, *arguments, **more)
