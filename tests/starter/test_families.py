"""Promise: a library that is divided into a wheel for each family of targets installs, by pip's extras, as much as a machine needs, and serves as
one; what is not installed, of another version or not for this machine is said with the command that helps."""

import base64
import csv
import email
import hashlib
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import kbundle
from kbundle import _wheel
from starter.test_starter import run, shell  # noqa: F401, the fixture

TABLE = "[tool.hatch.build.targets.wheel.hooks.kbundle]\n"
KEYS = 'manifests = ["kernels"]\nbundle = "src/leafy/leafy.kb"\nlean = true\n'
TARGETS = 'targets = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]\n'
DIVIDED = TARGETS + 'families = { v3 = ["x86-64-v3"], v4 = ["x86-64-v4"] }\n'
BUILD = "from hatchling.build import build_wheel; print(build_wheel('dist'))"  # as `python -m build --wheel` does
WHEELS = ["leafy-0.1.0-py3-none-any.whl", "leafy_v3-0.1.0-py3-none-any.whl", "leafy_v4-0.1.0-py3-none-any.whl"]

pytest.importorskip("hatchling", reason="scripts/setup installs hatchling")


def set_keys(project, keys):
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text[:text.index(TABLE) + len(TABLE)] + KEYS + keys)


def build(project, shell, code=BUILD):  # noqa: F811
    done = run([sys.executable, "-c", code], project, **shell)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def project(command, shell, tmp_path_factory):  # noqa: F811
    """A new library, which is to be divided and built."""
    folder = tmp_path_factory.mktemp("families")
    made = run([command, "new", "leafy"], folder)
    assert made.returncode == 0, made.stdout
    set_keys(folder / "leafy", DIVIDED)
    described = folder / "leafy/pyproject.toml"
    described.write_text(described.read_text().replace("[project]\n", '[project]\nlicense = { text = "Mine,\\nand yours" }\n'))
    (folder / "leafy/LICENSE").write_text("Do as you like.\n")
    return folder / "leafy"


@pytest.fixture(scope="module")
def dist(project, shell):  # noqa: F811
    """The folder of its wheels, and what packing said."""
    said = build(project, shell)
    return project / "dist", said


def install(dist, site, *wanted):
    """By pip, from the folder, with a wheel that stands for what the library needs."""
    _wheel.write(dist, "kbundle", "9", "py3-none-any", {}, "Metadata-Version: 2.1\nName: kbundle\nVersion: 9\n")
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links", dist, "--target", site]
    done = subprocess.run([*words, *wanted], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(site / "kbundle-9.dist-info")
    (dist / "kbundle-9-py3-none-any.whl").unlink()
    (site / "kbundle").symlink_to(pathlib.Path(kbundle.__file__).resolve().parent)  # alone, not beside kbundle-kernels
    return site


@pytest.fixture
def site(dist, tmp_path):
    """Where leafy[v3] is installed."""
    return install(dist[0], tmp_path / "site", "leafy[v3]")


def path_of(site):
    """PYTHONPATH of a process that has these packages and JAX."""
    return os.pathsep.join([str(site), *(path for path in sys.path if path.endswith("-packages"))])


def python(site, *words, isa="x86-64-v4", wrong=False):
    """What such a process prints, on a CPU of that level."""
    done = subprocess.run([sys.executable, "-S", *words], capture_output=True, text=True, timeout=300, env={
        "PYTHONPATH": path_of(site), "KBUNDLE_CPU_ISA": isa, "JAX_PLATFORMS": "cpu", "KBUNDLE_LIBRARY": kbundle.library_path()})
    assert (done.returncode != 0) == wrong, done.stdout + done.stderr
    return done.stderr if wrong else done.stdout


USE = """
import jax, kbundle, leafy.jax
print(jax.jit(jax.grad(lambda x: leafy.jax.squared_relu(x).sum()))(jax.numpy.arange(-3.0, 4)))
print(*sorted({row["variant"].partition("@")[2] for row in kbundle.stats()["chosen"]}))
"""


def test_a_base_wheel_and_one_for_each_family_name_each_other_in_one_version(dist):
    folder, said = dist
    assert sorted(path.name for path in folder.glob("*.whl")) == WHEELS
    sizes = dict(re.findall(r"kbundle: (\S+\.whl), ([\d,]+) bytes of the 100,000,000 that PyPI takes", said))
    assert sizes == {path.name: format(path.stat().st_size, ",") for path in folder.glob("*.whl")} and "WARNING" not in said
    needs = {}
    for name in WHEELS:
        with zipfile.ZipFile(folder / name) as wheel:
            about = email.message_from_bytes(wheel.read(next(path for path in wheel.namelist() if path.endswith(".dist-info/METADATA"))))
            assert wheel.read(next(path for path in wheel.namelist() if path.endswith("/licenses/LICENSE"))) == b"Do as you like.\n"
        needs[about["Name"]] = set(about.get_all("Requires-Dist"))
        assert about["Version"] == "0.1.0" and about["Requires-Python"] == ">=3.11"
        assert re.fullmatch(r"Mine,\s+and yours", about["License"]) and about["License-File"] == "LICENSE"
        extras = about.get_all("Provides-Extra")
        assert extras == (["jax", "torch", "v3", "v4"] if about["Name"] == "leafy" else None)
    assert needs == {"leafy": {"kbundle", "kbundle[jax]; extra == 'jax'", "kbundle[torch]; extra == 'torch'",
                               "leafy-v3==0.1.0; extra == 'v3'", "leafy-v4==0.1.0; extra == 'v4'"},
                     "leafy-v3": {"leafy==0.1.0"}, "leafy-v4": {"leafy==0.1.0"}}


def test_each_wheel_holds_its_targets_and_a_record_that_is_true(dist, tmp_path):
    targets = {}
    for name in WHEELS:
        with zipfile.ZipFile(dist[0] / name) as wheel:
            record, = [path for path in wheel.namelist() if path.endswith("/RECORD")]
            rows = [row for row in csv.reader(wheel.read(record).decode().splitlines()) if row[0] != record]
            assert {row[0] for row in rows} == set(wheel.namelist()) - {record}
            for path, digest, size in rows:
                data = wheel.read(path)
                assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() and len(data) == int(size)
            bundle, = [path for path in wheel.namelist() if path.endswith(".kb")]
            wheel.extract(bundle, tmp_path)
            targets[bundle] = kbundle.open(tmp_path / bundle, name=bundle).targets
    assert targets == {"leafy/leafy.kb": ["x86-64-v2"], "leafy_v3/leafy.kb": ["x86-64-v3"], "leafy_v4/leafy.kb": ["x86-64-v4"]}


def test_the_same_sources_elsewhere_give_the_same_bytes(dist, project, shell, tmp_path):  # noqa: F811
    shutil.copytree(project, tmp_path / "again", ignore=shutil.ignore_patterns("dist", "*.kb", "__pycache__"))
    build(tmp_path / "again", shell)
    for name in WHEELS:
        assert (tmp_path / "again/dist" / name).read_bytes() == (dist[0] / name).read_bytes(), name


def test_an_extra_installs_its_family_and_calls_go_to_what_fits_the_machine(site):
    assert sorted(path.name for path in site.iterdir() if not path.name.endswith(".dist-info")) == ["kbundle", "leafy", "leafy_v3"]
    for isa, served in (("x86-64-v2", "x86-64-v2"), ("x86-64-v3", "x86-64-v3"), ("x86-64-v4", "x86-64-v3")):
        assert python(site, "-c", USE, isa=isa) == f"[0. 0. 0. 0. 2. 4. 6.]\n{served}\n"


def test_the_base_alone_serves_what_it_has(dist, tmp_path):
    site = install(dist[0], tmp_path / "site", "leafy")
    assert python(site, "-c", USE) == "[0. 0. 0. 0. 2. 4. 6.]\nx86-64-v2\n"


def test_a_program_that_was_exported_with_some_parts_runs_with_others(dist, site, tmp_path):
    base = install(dist[0], tmp_path / "base", "leafy")
    file, asks = tmp_path / "program", "print(*sorted({row['variant'].partition('@')[2] for row in kbundle.stats()['chosen']}))"
    python(site, "-c", f"""
import jax, jax.export, leafy.jax, kbundle.jax as kbj
x = jax.ShapeDtypeStruct((7,), "float32")
open({str(file)!r}, "wb").write(jax.export.export(jax.jit(leafy.jax.squared_relu), disabled_checks=kbj.disabled_checks())(x).serialize())""")
    for packages, served in ((base, "x86-64-v2"), (site, "x86-64-v3")):
        assert python(packages, "-c", f"""
import jax, jax.export, kbundle, leafy, kbundle.jax
kbundle.use(leafy.BUNDLE)
program = jax.export.deserialize(open({str(file)!r}, "rb").read())
print(program.call(jax.numpy.arange(-3.0, 4)))
{asks}""") == f"[0. 0. 0. 0. 1. 4. 9.]\n{served}\n"


def test_a_base_that_was_built_whole_leaves_parts_alone(site):
    (site / "leafy/leafy.kb.parts").unlink()
    assert python(site, "-c", USE) == "[0. 0. 0. 0. 2. 4. 6.]\nx86-64-v2\n"
    assert "leafy_v3" not in python(site, "-m", "kbundle")


def test_all_ways_to_the_bundle_give_the_one_library(site):
    code = ("import kbundle, leafy; a = kbundle.default_bundle('leafy.squared_relu'); b = kbundle.open(leafy.BUNDLE); c = kbundle.use(leafy.BUNDLE);"
            "print(a is b is c, a.targets, [part.targets for part in a.parts])")
    assert python(site, "-c", code) == "True ['x86-64-v2', 'x86-64-v3'] [['x86-64-v2'], ['x86-64-v3']]\n"


def test_what_is_installed_and_what_is_not_is_listed(site, command):
    said = python(site, "-m", "kbundle")
    assert f"   part for x86-64-v3: {site}/leafy_v3/leafy.kb\n" in said
    assert '   part for x86-64-v4 is not installed: pip install "leafy[v4]==0.1.0"\n' in said
    row, = [row for row in json.loads(python(site, "-m", "kbundle", "--json"))["bundles"] if row["name"] == "leafy"]
    assert [part["targets"] for part in row["parts"]] == [["x86-64-v2"], ["x86-64-v3"]]
    assert row["absent"] == [{"targets": ["x86-64-v4"], "install": 'pip install "leafy[v4]==0.1.0"'}]


@pytest.mark.parametrize("isa, rows", [
    ("x86-64-v3", {"x86-64-v2": ("ok", "no device here"), "x86-64-v3": ("ok", "serves the CPU")}),
    ("x86-64-v4", {"x86-64-v2": ("ok", "no device here"), "x86-64-v3": ("ok", "serves the CPU"), "x86-64-v4": ("absent", "")}),
])
def test_doctor_says_which_part_serves_this_machine_and_which_would(site, command, tmp_path, isa, rows):
    ask = "import kbundle, leafy; print(kbundle.open(leafy.BUNDLE).explain('leafy.squared_relu', 'f32[4]')['target'])"
    if python(site, "-c", ask, isa=isa) != isa + "\n":
        pytest.skip(f"this CPU is below {isa}")
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\nPYTHONPATH={path_of(site)} KBUNDLE_LIBRARY={kbundle.library_path()} exec {sys.executable} -S \"$@\"\n")
    interpreter.chmod(0o755)
    done = subprocess.run([command, "doctor", "--json"], capture_output=True, text=True, timeout=300, env={
        "PATH": os.environ["PATH"], "KBUNDLE_PYTHON": str(interpreter), "KBUNDLE_CPU_ISA": isa, "CUDA_VISIBLE_DEVICES": ""})
    found = [row for row in json.loads(done.stdout)["findings"] if row["part"].startswith("part of leafy for ")]
    assert {row["part"].split()[-1]: (row["state"], row["version"]) for row in found} == rows
    advice = {row["part"].split()[-1]: row["advice"] for row in found}.get("x86-64-v4")
    assert advice in (None, 'it would serve the CPU (x86-64-v4): pip install "leafy[v4]==0.1.0"')


def test_a_machine_that_nothing_installed_serves_is_told_what_to_install(project, shell, tmp_path):  # noqa: F811
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("dist", "*.kb"))
    set_keys(copy, 'targets = ["x86-64-v3", "x86-64-v2"]\nfamilies = { old = ["x86-64-v2"] }\n')
    build(copy, shell)
    site = install(copy / "dist", tmp_path / "site", "leafy")
    said = python(site, "-c", USE, isa="x86-64-v2", wrong=True)
    assert f"no part of 'leafy' has code for this x86-64-v2; there is: x86-64-v3 ({site}/leafy/leafy.kb); pip install \"leafy[old]==0.1.0\"" in said
    install(copy / "dist", tmp_path / "both", "leafy[old]")
    assert python(tmp_path / "both", "-c", USE, isa="x86-64-v2").endswith("\nx86-64-v2\n")


def test_a_part_of_another_version_is_refused_with_both_names(site):
    beside = site / "leafy_v3/leafy.kb.parts"
    beside.write_text(beside.read_text().replace("version 0.1.0", "version 0.2.0"))
    assert f"{site}/leafy_v3/leafy.kb is of leafy 0.2.0, part v3, and {site}/leafy/leafy.kb is the base of leafy 0.1.0: parts of a library are of " \
        'one version: pip install "leafy[v3]==0.1.0"' in python(site, "-c", USE, wrong=True)


def test_a_part_in_another_folder_of_pythons_path_is_found_there(site, tmp_path):
    (tmp_path / "user").mkdir()
    (site / "leafy_v3").rename(tmp_path / "user/leafy_v3")
    assert "part for x86-64-v3 is not installed" in python(site, "-m", "kbundle")
    code = f"import sys; sys.path.append({str(tmp_path / 'user')!r})\n" + USE
    assert python(site, "-c", code, isa="x86-64-v3").endswith("\nx86-64-v3\n")


@pytest.mark.parametrize("damage, said", [
    (lambda site: (site / "leafy_v3/leafy.kb").unlink(), "there is no file SITE/leafy_v3/leafy.kb, although"),
    (lambda site: (site / "leafy_v3/leafy.kb").write_bytes(b"no bundle"), "opening bundle 'SITE/leafy_v3/leafy.kb'"),
    (lambda site: shutil.copy(site / "leafy/leafy.kb", site / "leafy_v3/leafy.kb"),
     "SITE/leafy/leafy.kb and SITE/leafy_v3/leafy.kb both have code for x86-64-v2"),
    (lambda site: (site / "leafy/leafy.kb.parts").write_text("{"), "reading SITE/leafy/leafy.kb.parts, which says what belongs to the bundle"),
    (lambda site: (site / "leafy/leafy.kb.parts").write_text("kbundle parts 1\nfamily ../v3\n"), "reading SITE/leafy/leafy.kb.parts"),
], ids=["gone", "damaged", "the base's", "no lines", "other lines"])
def test_what_is_wrong_with_a_part_is_said_with_its_file(site, damage, said):
    damage(site)
    assert said.replace("SITE", str(site)) in python(site, "-c", USE, wrong=True)
    listed = python(site, "-c", "import kbundle; print(*(found.error for found in kbundle.bundles()))")
    assert said.replace("SITE", str(site)) in listed


def test_a_program_opens_several_files_as_one(dist, tmp_path):
    paths = []
    for name, folder in zip(WHEELS, ("leafy", "leafy_v3", "leafy_v4")):
        with zipfile.ZipFile(dist[0] / name) as wheel:
            paths.append(wheel.extract(f"{folder}/leafy.kb", tmp_path))
    with kbundle.open_library(paths, name="several") as library:
        assert [part.path for part in library.parts] == paths and library.targets == ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
        assert kbundle.open_library(paths[::-1], name="several") is library, "the same content"
        assert pickle.loads(pickle.dumps(library)) is library
        for target in library.targets:
            explained = library.explain("leafy.squared_relu", "f32[4]", target=target)
            assert explained["chosen"].endswith("@" + target) and explained["part"] == paths[library.targets.index(target)]
        with pytest.raises(kbundle.Error, match="op 'leafy.squared_relu' under that name is taken by other content"):
            kbundle.open(paths[1], name="several")
    for wrong, said in (([], "no path is given"), ([paths[0], paths[0]], "both have code for x86-64-v2"), ([paths[0], tmp_path / "no.kb"], "no.kb")):
        with pytest.raises(kbundle.Error, match=said):
            kbundle.open_library(wrong, name="several")


@pytest.mark.parametrize("keys, said", [
    (TARGETS + "families = 1\n", "families is 1; it must be a table"),
    (TARGETS + 'families = { Big-One = ["x86-64-v3"] }\n', "families is {'Big-One': ['x86-64-v3']}; it must be a table"),
    (TARGETS + 'families = { v3 = "x86-64-v3" }\n', "families.v3 is 'x86-64-v3'; it must be a list of targets"),
    (TARGETS + 'families = { v3 = ["sm_90a"] }\n', "families.v3 has 'sm_90a', which is none of targets: x86-64-v2, x86-64-v3, x86-64-v4"),
    (TARGETS + 'families = { a = ["x86-64-v3"], b = ["x86-64-v3"] }\n', "both families.a and families.b have 'x86-64-v3'"),
    (TARGETS + 'families = { a = ["x86-64-v2", "x86-64-v3", "x86-64-v4"] }\n', "families take every target, and the base has none"),
    ('families = { v3 = ["x86-64-v3"] }\n', "families is there, and targets is not"),
], ids=["kind", "name", "value", "unknown", "twice", "all", "no targets"])
def test_a_mistake_in_pyproject_names_the_key(project, shell, tmp_path, keys, said):  # noqa: F811
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("dist", "*.kb"))
    set_keys(copy, keys)
    done = run([sys.executable, "-c", BUILD], copy, **shell)
    assert done.returncode and said in done.stdout, done.stdout
    assert not list(copy.rglob("*.kb")) and not list(copy.rglob("*.whl"))


def test_a_wheel_that_is_larger_than_the_index_takes_is_warned_of_without_being_asked(project, shell, tmp_path):  # noqa: F811
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("dist", "*.kb"))
    said = build(copy, shell, "import kbundle._hatch; kbundle._hatch.INDEX_LIMIT = 6000; " + BUILD)
    assert re.findall(r"WARNING: (\S+) is larger than PyPI takes", said) == [WHEELS[0]]


def test_what_pip_builds_itself_is_one_wheel_with_every_target(project, shell, tmp_path):  # noqa: F811
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("dist", "*.kb"))
    done = run([sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", "dist", "."], copy, **shell)
    assert done.returncode == 0, done.stdout
    made, = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(made) as wheel:
        wheel.extract("leafy/leafy.kb", tmp_path)
        assert "leafy/leafy.kb.parts" not in wheel.namelist()
    assert kbundle.open(tmp_path / "leafy/leafy.kb", name="whole").targets == ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
