"""Promise: who opens a file has it until he gives it back, whoever else opens and closes the same; what is in use stays open; a bundle may
be closed by a finalizer or a signal handler, whatever its thread is doing."""

import ctypes
import gc
import os
import subprocess
import sys

import pytest
from at_once import at_once

import kbundle
from kbundle import _open_bundles
from kbundle._library import check, library


def child(code, **environment):
    """What Python code prints in a process of its own, which must end well, and soon."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment}
    done = subprocess.run([sys.executable, "-c", "import faulthandler; faulthandler.dump_traceback_later(100, exit=True)\n" + code],
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def is_open(name):
    try:
        return kbundle.find(name) is not None
    except kbundle.Error as error:
        assert error.tag == "NOT_FOUND"
        return False


def test_the_last_of_all_who_opened_a_file_closes_it(probe_path):
    first = kbundle.open(probe_path, name="counted")
    with kbundle.open(probe_path, name="counted") as second:
        assert second is first
        with kbundle.open(probe_path, name="counted"):
            pass
        assert kbundle.open(probe_path, name="counted", reload=True) is first
        first.close()
        assert not first.closed
    assert first.explain("probe.shift", "f32[3]")["chosen"] and is_open("counted")
    first.close()
    assert first.closed and not is_open("counted")
    first.close()  # one too many
    with kbundle.open(probe_path, name="counted") as again:
        first.close()
        assert not again.closed
    assert again.closed


def test_threads_that_open_and_close_one_file_do_not_meet(probe_path):
    wrong = []

    def work(seed):
        for index in range(100):
            try:
                with kbundle.open(probe_path, name="pooled") as bundle:
                    assert kbundle.find("pooled") is bundle
                    assert bundle.explain("probe.shift", "f32[%d]" % (index % 9 + 1))["chosen"]
            except Exception as error:
                wrong.append(error)
    at_once(work)
    assert not wrong, wrong[:3]
    assert not is_open("pooled")


def test_who_has_dropped_the_object_has_the_file_open(probe_path):
    kbundle.open(probe_path, name="dropped")
    gc.collect()
    with kbundle.open(probe_path, name="dropped"):
        pass
    assert is_open("dropped")
    kbundle.open(probe_path, name="dropped").close()
    kbundle.find("dropped").close()
    assert not is_open("dropped")


def test_what_is_in_use_is_closed_by_nobody(probe_path, demo_path):
    child(f"""
import kbundle
used = kbundle.use({str(probe_path)!r})
with kbundle.open({str(probe_path)!r}) as same:
    assert same is used
for turn in range(3):
    used.close()
    assert kbundle.default_bundle() is used and not used.closed
other = kbundle.use({str(demo_path)!r})
assert used.closed and kbundle.default_bundle() is other
again = kbundle.use(kbundle.open({str(probe_path)!r}))  # who opened it has it still when another is used
kbundle.use(other)
assert not again.closed and not other.closed
again.close()
assert again.closed
try:
    kbundle.use(again)
except kbundle.Error as error:
    assert error.tag == "FAILED_PRECONDITION" and kbundle.default_bundle() is other
else:
    raise AssertionError("a closed bundle is in use")
""")


def test_what_serves_a_place_is_closed_by_nobody(probe_path):
    child(f"""
import kbundle
served = kbundle.default_bundle("probe.shift")
with kbundle.open({str(probe_path)!r}) as same:
    assert same is served
served.close()
assert not served.closed and kbundle.default_bundle("probe.shift") is served
""", KBUNDLE_PATH=str(probe_path))


def test_what_others_opened_stays_open_when_another_is_used(probe_path, monkeypatch):
    out = ctypes.c_void_p()
    check(library().kb_bundle_open(os.fsencode(probe_path), b"of others", ctypes.byref(out)))
    monkeypatch.setattr(_open_bundles, "_default", None)
    kbundle.use(kbundle.find("of others"))
    with kbundle.open(probe_path, name="not of others") as own:
        kbundle.use(own)
        assert is_open("of others")
        kbundle.use(kbundle.find("of others"))
    assert own.closed
    check(library().kb_bundle_close(out))
    library().kb_bundle_release(out)


AT_EVERY_LINE = """
import itertools, sys, weakref
import kbundle
from kbundle import _bundle, _open_bundles
FILES = {_bundle.__file__, _open_bundles.__file__, weakref.__file__}
PROBE, OTHER, DEMO = %r, %r, %r

def at_line(number, act, run):
    # (run(), whether act() was called, before the line of that number that runs in FILES)
    left = number
    def line(frame, event, argument):
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                act()
        return line
    sys.settrace(lambda frame, event, argument: line if frame.f_code.co_filename in FILES else None)
    try:
        result = run()
    finally:
        sys.settrace(None)
    return result, left <= 0

def is_open(name):
    try:
        return kbundle.find(name) is not None
    except kbundle.Error:
        return False
"""


@pytest.mark.parametrize("code", ["""
for number in itertools.count(1):  # the same is closed while it is opened
    before = kbundle.open(PROBE, name="x")
    made, reached = at_line(number, before.close, lambda: kbundle.open(PROBE, name="x"))
    if not reached:
        before.close()
    assert kbundle.find("x") is made and made.explain("probe.shift", "f32[3]")["chosen"]
    made.close()
    assert made.closed and not is_open("x")
    if not reached:
        break
""", """
for number in itertools.count(1):  # it is closed while it is closed
    made = kbundle.open(PROBE, name="x")
    _, reached = at_line(number, made.close, made.close)
    assert made.closed and not is_open("x")
    if not reached:
        break
""", """
for number in itertools.count(1):  # another is closed while one is loaded anew in the place of what is in use
    other = kbundle.open(DEMO, name="y")
    old = kbundle.use(kbundle.open(PROBE, name="x"))
    new, reached = at_line(number, other.close, lambda: kbundle.open(OTHER, name="x", reload=True))
    if not reached:
        other.close()
    assert other.closed and not is_open("y") and kbundle.find("x") is kbundle.default_bundle() is new
    new.close()
    assert not new.closed
    kbundle.use(kbundle.open(DEMO, name="z"))
    assert new.closed and not is_open("x")
    if not reached:
        break
""", """
for number in itertools.count(1):  # the old one is closed while another is used
    old, new = kbundle.use(kbundle.open(PROBE, name="x")), kbundle.open(DEMO, name="y")
    _, reached = at_line(number, old.close, lambda: kbundle.use(new))
    if not reached:
        old.close()
    assert old.closed and not is_open("x") and kbundle.default_bundle() is new
    new.close()
    if not reached:
        break
""", """
for number in itertools.count(1):  # one is opened and another closed while all are looked through
    one = kbundle.open(PROBE, name="x")
    opened = []
    found, reached = at_line(number, lambda: (opened.append(kbundle.open(DEMO, name="y")), one.close()), _open_bundles.every)
    assert all(bundle.name for bundle in found) and (one not in _open_bundles.every()) == reached
    for other in opened:
        other.close()
    if not reached:
        break
"""], ids=["open", "close", "reload", "use", "every"])
def test_a_bundle_may_be_closed_at_any_line(probe_path, other_probe_path, demo_path, code):
    child(AT_EVERY_LINE % tuple(map(str, (probe_path, other_probe_path, demo_path))) + code + "assert number > 2")


def test_finalizers_and_signal_handlers_close_what_is_theirs(probe_path, demo_path):
    child(f"""
import gc, signal
import kbundle
class Model:  # in a cycle, as models are
    def __init__(self, number):
        self.bundle, self.me = kbundle.open({str(demo_path)!r}, name="model %d" % number), self
    def __del__(self):
        self.bundle.close()
for number in range(1, 300):
    gc.disable()
    Model(number)
    gc.set_threshold(gc.get_count()[0] + number)  # when it is collected
    gc.enable()
    kbundle.open({str(probe_path)!r}, name="other %d" % number).close()
gc.set_threshold(700)
theirs = kbundle.open({str(demo_path)!r})
signal.signal(signal.SIGALRM, lambda *_: theirs.close())
for number in range(300):
    signal.setitimer(signal.ITIMER_REAL, 1e-5 * (number + 1))
    kbundle.open({str(probe_path)!r}).close()
signal.setitimer(signal.ITIMER_REAL, 0)
assert theirs.closed
""")
