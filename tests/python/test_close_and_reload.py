"""Promise: a bundle can be closed and loaded anew under its name; compiled programs keep what they have; descriptors come back;
libraries that know nothing of each other may use one name."""

import gc
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj

X = np.ones((3, 5), np.float32)


def shift(bundle, by=1):
    return jax.jit(lambda x: kbj.call(bundle, "probe.shift", x, by=by))


def child(code):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_closed_bundle_says_so_and_its_name_is_free(probe_path, other_probe_path):
    with kbundle.open(probe_path, name="closing") as bundle:
        assert kbundle.find("closing") is bundle
    bundle.close()
    for use in (bundle.verify, lambda: bundle.explain("probe.shift", X), lambda: bundle.force("probe.shift/loop")):
        with pytest.raises(kbundle.Error, match="FAILED_PRECONDITION.*'closing'.*closed; open the file again"):
            use()
    for use in (lambda: kbundle.find("closing"), lambda: kbj.call(bundle, "probe.shift", X)):
        with pytest.raises(kbundle.Error, match="NOT_FOUND.*'closing'"):
            use()
    with kbundle.open(other_probe_path, name="closing") as other:
        assert other.content_id != bundle.content_id


def test_a_compiled_program_outlives_its_bundle(probe_path):
    bundle = kbundle.open(probe_path, name="outlived")
    program = shift(bundle, by=61)
    np.testing.assert_array_equal(program(X), X + 61)
    bundle.close()
    gc.collect()
    np.testing.assert_array_equal(program(X), X + 61)
    with pytest.raises(kbundle.Error, match="NOT_FOUND"):
        shift(bundle, by=62)(X)


def test_what_is_compiled_after_a_reload_is_of_the_new_file(probe_path, other_probe_path):
    old = kbundle.open(probe_path, name="reloaded")
    program = shift(old, by=67)
    program(X)
    kbj.call(old, "probe.shift", X, by=71)
    new = kbundle.open(other_probe_path, name="reloaded", reload=True)
    assert kbundle.find("reloaded") is new and new.content_id != old.content_id
    with kbundle.open(other_probe_path, name="reloaded", reload=True) as again:
        assert again is new
    np.testing.assert_array_equal(program(X), X + 67)
    assert not [row for row in new.stats()["chosen"] if "by=67" in row["problem"]]
    for bundle in (old, new):  # the name decides, eagerly too
        np.testing.assert_array_equal(kbj.call(bundle, "probe.shift", X, by=71), X + 71)
        np.testing.assert_array_equal(shift(bundle, by=73)(X), X + 73)
    assert {"by=71", "by=73"} <= {word.strip(")") for row in new.stats()["chosen"] for word in row["problem"].split()}
    old.close()
    assert kbundle.find("reloaded") is new
    new.close()


@pytest.mark.parametrize("by_path", [False, True])
def test_calls_that_name_no_bundle_follow_a_reload(probe_path, other_probe_path, demo_path, tmp_path, by_path):
    file = shutil.copy(probe_path, tmp_path / "mine.kb")
    begin = f"os.environ['KBUNDLE_PATH'] = {str(file)!r}" if by_path else f"kbundle.use({str(file)!r})"
    child(f"""
import gc, os, shutil
import numpy as np
import kbundle, kbundle.jax as kbj
def ran():
    kbj.call(None, "probe.shift", np.ones((3, 5), np.float32)).block_until_ready()
    return {{row["content_id"] for row in kbundle.stats()["chosen"]}}
{begin}
old = kbundle.default_bundle("probe.shift")
assert ran() == {{old.content_id}}
for other in ({str(other_probe_path)!r}, {str(probe_path)!r}):
    shutil.copy(other, {str(file)!r} + ".new")
    os.replace({str(file)!r} + ".new", {str(file)!r})
    with kbundle.open({str(file)!r}, old.name, reload=True) as new:
        assert new.content_id != old.content_id and not old.closed
        assert kbundle.default_bundle() is kbundle.default_bundle("probe.shift") is new
        assert new.content_id in ran()
    assert not new.closed and kbundle.default_bundle("probe.shift") is new
    if {not by_path}:
        assert kbundle.use(old) is kbundle.use(new) is new  # under that name, old is no more
        assert not new.closed
    assert [found.name for found in kbundle.bundles() if found.error is None][0] == new.name
    old.close()
    old = new
aside = kbundle.open({str(other_probe_path)!r}, "another name", reload=True)
unlike = kbundle.open({str(demo_path)!r}, old.name, reload=True)  # shares no op
assert kbundle.default_bundle("probe.shift") is old and kbundle.find(old.name, "probe.shift") is old
""")


def test_many_opens_leave_no_descriptors(probe_path):
    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))
    before = descriptors()
    for number in range(300):
        with kbundle.open(probe_path, name="number %d" % number) as bundle:
            if number % 100 == 0:
                kbj.call(bundle, "probe.shift", X, by=79)
    jax.clear_caches()
    assert descriptors() <= before + 2


def test_two_libraries_under_one_name(probe_path, demo_path):
    opens = [f"kbundle.open({str(path)!r}, name='kernels')" for path in (probe_path, demo_path)]
    run = """
x = np.ones((3, 5), np.float32)
f = jax.jit(lambda x: sum(kbj.call(kbundle.find('kernels', 'demo.bounds'), 'demo.bounds', x)))
"""
    prelude = "import jax, numpy as np, kbundle, kbundle.jax as kbj\n"
    exports = [child(prelude + "\n".join(order) + run + """
assert (kbj.call(kbundle.find('kernels', 'probe.shift'), 'probe.shift', x) == 2).all()
print(jax.export.export(f, disabled_checks=kbj.disabled_checks())(x).serialize().hex())
""").split()[-1] for order in (opens, opens[::-1])]
    for exported in exports:
        child(prelude + opens[1] + f"""
again = jax.export.deserialize(bytes.fromhex({exported!r}))
assert (again.call(np.ones((3, 5), np.float32)) == 2).all()
""")


def test_a_name_of_several_files_asks_which_op(probe_path, demo_path):
    with kbundle.open(probe_path, name="several") as one, kbundle.open(demo_path, name="several") as other:
        assert kbundle.find("several", "probe.shift") is one and kbundle.find("several", "demo.bounds") is other
        with pytest.raises(kbundle.Error, match="several files.*probe.kb.*demo.kb"):
            kbundle.find("several")
        with pytest.raises(kbundle.Error, match="NOT_FOUND.*none of the bundles open as 'several'"):
            kbundle.find("several", "none.such")
    with pytest.raises(kbundle.Error, match="NOT_FOUND"):
        kbundle.find("several", "probe.shift")
