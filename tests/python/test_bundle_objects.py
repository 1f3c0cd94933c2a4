"""Promise: a Bundle may be copied, pickled and kept anywhere; every copy is the same bundle, and its handle is freed once."""

import copy
import gc
import hashlib
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

import kbundle


def child(code, cwd=None):
    """Runs Python code in a fresh process, which must end well; its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("copied", ["copy.copy(b)", "copy.deepcopy(b)", "pickle.loads(pickle.dumps(b))",
                                    "copy.deepcopy({'a': [b, b]})['a'][1]", "copy.copy(b.ops[0])._bundle"])
def test_copies_share_one_handle(probe_path, copied):
    child(f"""
import copy, gc, pickle, kbundle
b = kbundle.open({str(probe_path)!r})
other = {copied}
assert other is b
del other
gc.collect()
assert b.explain("probe.shift", "f32[3]")["chosen"]
del b
""")


def test_a_pickle_is_opened_by_who_reads_it(probe_path, tmp_path):
    out = child(f"""
import kbundle, pickle, sys
b = kbundle.open({probe_path.name!r}, name="pickled")
sys.stdout.write(pickle.dumps([b, b.op("probe.shift")]).hex())
""", cwd=probe_path.parent)
    out = child(f"""
import pickle, kbundle
bundle, op = pickle.loads(bytes.fromhex({out!r}))
assert bundle is kbundle.find("pickled") and op is bundle.op("probe.shift")
print(bundle.explain("probe.shift", "f32[3]")["chosen"])
""", cwd=tmp_path)
    assert "probe.shift/loop" in out


def test_an_op_is_copied_and_pickled_with_its_bundle(probe):
    op = probe.op("probe.shift")
    assert copy.copy(op) is op and copy.deepcopy(op) is op and pickle.loads(pickle.dumps(op)) is op
    assert op.variants


@pytest.mark.parametrize("folder", [b"\xff\xfe", b"caf\xe9", b"\xe2\x82", "gr\u00fcn".encode()], ids=ascii)
def test_a_path_is_as_python_has_it_whatever_its_bytes_are(probe_path, demo_path, tmp_path, folder):
    place = os.path.join(os.fsencode(tmp_path), folder)
    os.mkdir(place)
    file = shutil.copy(probe_path, os.path.join(place, b"probe.kb"))
    with kbundle.open(file, name="odd path %r" % folder) as bundle:
        assert bundle.path == bundle.parts[0].path == os.fsdecode(file) and os.path.samefile(bundle.path, file)
        assert kbundle.find(bundle.name).path == bundle.path
        with kbundle.open_library([file], name="odd path too %r" % folder) as library:
            assert library.path == bundle.path
    with kbundle.open(os.path.relpath(os.fsdecode(file)), name="odd path %r" % folder) as bundle:
        assert bundle.path == os.path.relpath(os.fsdecode(file))


@pytest.mark.parametrize("entry", ["/x\ud800", "\udfff", "/x\0", 7, None, b"/x", "", "/nowhere"], ids=ascii)
def test_an_entry_of_the_search_path_that_names_no_folder_is_skipped(probe_path, monkeypatch, entry):
    monkeypatch.setattr(sys, "path", [entry, *sys.path, entry])
    with kbundle.open(probe_path, name="odd entry") as bundle:
        assert bundle.has("probe.shift")


def test_the_content_id_is_the_sha256_of_the_outline_of_the_index(probe, probe_path):
    header = probe_path.read_bytes()[:128]
    at, size, pages = (int.from_bytes(header[where:where + 8], "little") for where in (32, 40, 96))
    assert probe.content_id == hashlib.sha256(probe_path.read_bytes()[at:at + size - pages]).hexdigest()


def test_a_handle_is_never_copied(probe):
    assert copy.copy(probe._handle) is probe._handle and copy.deepcopy(probe._handle) is probe._handle
    with pytest.raises(TypeError, match="belongs to this process"):
        pickle.dumps(probe._handle)


def test_stats_are_of_the_content_under_any_name(probe_path):
    import kbundle.jax as kbj
    named = kbundle.open(probe_path, name="stats under another name")
    kbj.call(named, "probe.shift", np.ones((19, 3), np.float32), by=47).block_until_ready()  # the CPU makes its plan then
    assert any("by=47" in row["problem"] for row in named.stats()["chosen"])
    assert all(row["content_id"] == named.content_id for row in named.stats()["chosen"])
    gc.collect()
