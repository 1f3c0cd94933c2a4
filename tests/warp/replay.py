"""Stands in for a Python with Warp: answers as Warp did when recorded.json was written. With --record PYTHON it asks
that one and writes the file. What the builder runs is a script that calls this with `-s -c SCRIPT probe` or `-B -s -c
SCRIPT serve FOLDER SOURCE OUT`; an answer is kept by the request and the digest of the source.
"""
import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import zlib

RECORDED = pathlib.Path(__file__).with_name("recorded.json")


def key(folder, request):
    files = sorted(path for path in pathlib.Path(folder).rglob("*.py"))
    source = b"".join(path.read_bytes() for path in files)
    return hashlib.sha256(source + request.strip().encode()).hexdigest()


def replay(folder, out):
    known = json.loads(RECORDED.read_text())["answers"]
    with os.fdopen(3, encoding="utf-8") as requests, os.fdopen(4, "w", encoding="utf-8") as answers:
        for line in requests:
            found = known.get(key(folder, line))
            answer = found["answer"] if found else {
                "ok": False, "error": "no answer is recorded: install warp-lang==1.19.0, or run tests/warp/record", "at": {},
                "log": "", "note": ""}
            if found and answer["ok"]:
                pathlib.Path(out).write_bytes(zlib.decompress(base64.b64decode(found["output"])))
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def record(python, arguments, folder, out, to):
    """Between the builder and a real Warp: passes on what both say, and keeps it."""
    ask, asked = os.pipe()
    answered, answer = os.pipe()

    def descriptors():
        os.dup2(ask, 103), os.dup2(answer, 104), os.dup2(103, 3), os.dup2(104, 4)

    child = subprocess.Popen([python, *arguments], close_fds=False, preexec_fn=descriptors)
    os.close(ask), os.close(answer)
    with os.fdopen(3) as requests, os.fdopen(4, "w") as answers, os.fdopen(asked, "w") as to_warp, os.fdopen(answered) as from_warp:
        for line in requests:
            to_warp.write(line)
            to_warp.flush()
            said = from_warp.readline()
            row = {"answer": json.loads(said)}
            if row["answer"]["ok"]:
                row["output"] = base64.b64encode(zlib.compress(pathlib.Path(out).read_bytes(), 9)).decode()
            pathlib.Path(to, key(folder, line) + ".json").write_text(json.dumps(row))
            answers.write(said)
            answers.flush()
    child.wait()


def main(arguments):
    recording = arguments[0] == "--record" and arguments[1:3]
    if recording:
        arguments = arguments[3:]
    if arguments[-1] == "probe":
        if recording:
            return subprocess.call([recording[0], *arguments])
        return print(json.dumps({**json.loads(RECORDED.read_text())["probe"], "files": []}))
    folder, _, out = arguments[-3:]
    return record(recording[0], arguments, folder, out, recording[1]) if recording else replay(folder, out)


sys.exit(main(sys.argv[1:]))
