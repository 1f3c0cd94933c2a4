"""The cache as people share and tend it: a shared folder behind one's own, `kbundle cache` status, prune and verify."""

import json
import os
import time

from cli.command import HOST_TARGETS, Command
from cli.test_files import in_namespace, root


def of(person, command, tmp_path):
    return Command(command, tmp_path / person / "cache", tmp_path / person)


def test_what_one_built_another_need_not(command, tiny, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    ann = of("ann", command, tmp_path).build(tiny, tmp_path / "a.kb", "--name", "n", "--shared-cache", shared, "--json").json
    assert ann["compiled"] > 0 and not ann["warnings"]
    ben = of("ben", command, tmp_path).build(tiny, tmp_path / "b.kb", "--name", "n", "--json", env={"KBUNDLE_SHARED_CACHE": f"{shared}:ro"}).json
    assert ben["compiled"] == 0 and not ben["warnings"]
    assert (tmp_path / "a.kb").read_bytes() == (tmp_path / "b.kb").read_bytes()
    assert not list(shared.rglob("last")) and list(shared.rglob("objects"))


def test_a_shared_folder_that_is_not_there_is_one_warning(kbundle, tiny, tmp_path):
    built = kbundle.build(tiny, tmp_path / "a.kb", "--shared-cache", tmp_path / "not-mounted", "--json")
    [warning] = built.json["warnings"]
    assert built.code == 0 and "not-mounted" in warning and not (tmp_path / "not-mounted").exists()


def test_status_counts_what_a_build_kept(kbundle, tiny, tmp_path):
    assert kbundle("cache").code == 0 and kbundle("cache", "--json").json["entries"] == 0
    kbundle.build(tiny, tmp_path / "a.kb")
    told = kbundle("cache", "--json").json
    files = [path for path in (tmp_path / "cache/v1").rglob("*") if path.is_file()]
    assert told["entries"] == len(files) and told["bytes"] == sum(path.stat().st_size for path in files)
    assert told["kinds"]["objects"]["entries"] >= len(HOST_TARGETS.split(","))
    assert "objects" in kbundle("cache", "status").out


def test_prune_takes_what_was_not_used(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "a.kb", "--name", "n")
    objects = [path for path in (tmp_path / "cache/v1/objects").rglob("*") if path.is_file()]
    long_ago = time.time() - 40 * 24 * 3600
    os.utime(objects[0], (long_ago, long_ago))
    assert kbundle("cache", "prune", "--unused", "30d", "--json").json["removed"] == 1 and not objects[0].exists()
    assert kbundle.build(tiny, tmp_path / "b.kb", "--name", "n", "--json").json["compiled"] == 1
    assert kbundle("cache", "prune", "--max-size", "0K", "--json").json["bytes"] == 0
    kbundle.build(tiny, tmp_path / "c.kb", "--name", "n")
    assert (tmp_path / "a.kb").read_bytes() == (tmp_path / "b.kb").read_bytes() == (tmp_path / "c.kb").read_bytes()


def test_prune_says_what_it_wants(kbundle):
    wrong = ("prune", "--unused 30d", "prune --unused 30", "prune --unused x", "prune --max-size big", "prune --max-size 9999999999999G")
    for words in wrong:
        answer = kbundle("cache", *words.split())
        option = next((word for word in words.split() if word.startswith("--")), "--unused")
        assert answer.code == 2 and option in answer.err and "kbundle cache" in answer.err, words


def test_verify_names_what_is_damaged_and_the_next_build_mends_it(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "a.kb", "--name", "n")
    assert kbundle("cache", "verify").code == 0
    harmed = next(path for path in (tmp_path / "cache/v1/objects").rglob("*") if path.is_file())
    harmed.write_bytes(harmed.read_bytes()[:-1] + b"?")
    answer = kbundle("cache", "verify", "--json")
    assert answer.code == 1 and answer.json["damaged"] == [str(harmed)]
    assert kbundle.build(tiny, tmp_path / "b.kb", "--name", "n", "--json").json["compiled"] == 1
    assert kbundle("cache", "verify").code == 0
    assert (tmp_path / "a.kb").read_bytes() == (tmp_path / "b.kb").read_bytes()


def test_looking_at_a_cache_makes_none(kbundle, tmp_path):
    nowhere = tmp_path / "mistyped"
    for words in (["status"], ["verify"], ["prune", "--unused", "1d"]):
        answer = kbundle("cache", *words, "--cache", nowhere)
        assert answer.code == 1 and str(nowhere) in answer.err and "no such folder" in answer.err and not nowhere.exists()
    assert kbundle("cache", env={"KBUNDLE_CACHE": str(nowhere)}).code == 0 and not nowhere.exists()  # nothing was built yet
    nowhere.write_text("a file")
    answer = kbundle("cache", "--cache", nowhere)
    assert answer.code == 1 and str(nowhere) in answer.err


@root
def test_what_prune_may_not_remove_is_said_once(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "a.kb")
    entries, kept = kbundle("cache", "--json").json["entries"], tmp_path / "cache/v1/objects"
    held = len([path for path in kept.rglob("*") if path.is_file()])
    script = 'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; "$0" cache prune --max-size 0K --json'
    done = in_namespace(kbundle, script, kept)
    told = json.loads(done.stdout)
    assert held > 1 and done.returncode == 1 and told["refused"] == held and told["removed"] == entries - held
    assert done.stderr.count("warning") == 1 and str(kept) in done.stderr and "Read-only" in done.stderr
