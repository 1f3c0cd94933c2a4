"""Promise: what `kbundle new` writes tests, builds, packs and runs as it stands, and a name or place that does not do writes nothing.

The wheel is made by hatchling with kbundle's hook, without a network, and its content runs from a folder of its own.
"""

import email
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAID = re.compile(r"```sh\n(.*?)```", re.S)


def run(words, folder, **variables):
    return subprocess.run(list(map(str, words)), cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=300)


@pytest.fixture(scope="module")
def library(command, tmp_path_factory):
    """One that was made, tested and built as its README says."""
    folder = tmp_path_factory.mktemp("new")
    made = run([command, "new", "leafy"], folder)
    assert made.returncode == 0, made.stdout
    return folder / "leafy"


@pytest.fixture(scope="module")
def shell(command, tmp_path_factory):
    """PATH and PYTHONPATH of a machine where kbundle is installed: its command, its package, and the metadata that names its hook."""
    place = tmp_path_factory.mktemp("installed")
    (place / "bin").mkdir()
    (place / "bin/kbundle").symlink_to(command)
    about = place / "kbundle-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kbundle\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[hatch]\nkbundle = kbundle._hatch\n")
    return dict(PATH=f"{place}/bin:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", KBUNDLE_COMMAND=command,
                KBUNDLE_CACHE=str(place / "cache"), PYTHONPATH=f"{ROOT}/ffi/python:{place}", PIP_DISABLE_PIP_VERSION_CHECK="1")


def lines_of(library):
    """The README's commands, without those that only say what a machine has."""
    return [line for line in SAID.search((library / "README.md").read_text()).group(1).splitlines() if line]


def said(library, shell, *words):
    """Runs the README's one line that has these words, as it stands."""
    line, = [line for line in lines_of(library) if all(word in line for word in words)]
    line = line.replace("PYTHONPATH=src ", f"PYTHONPATH=src:{shell['PYTHONPATH']} ")
    done = run(["bash", "-euc", line], library, **shell)
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def built(library, shell):
    said(library, shell, "kbundle build")
    return library


def test_its_manifest_has_no_finding_and_every_command_of_its_readme_is_run_here(library, shell):
    assert len(lines_of(library)) == 6
    out = run(["kbundle", "doctor", "kernels"], library, **shell)
    assert out.returncode in (0, 1, 3) and "leafy.toml" not in out.stdout, out.stdout


def test_every_host_variant_is_right_and_noted(library, shell):
    out = said(library, shell, "kbundle test")
    assert re.search(r"(\d+) of \1 variants right", out), out
    assert (library / "kernels/ran_on.jsonl").exists()
    said(library, shell, "kbundle tune")
    assert list((library / "kernels/tuning").iterdir())


def test_its_own_tests_pass(built, shell):
    assert " passed" in said(built, shell, "pytest")


def test_it_serves_every_target_and_its_gpu_kernels_are_compiled(built, shell):
    found = json.loads(run(["kbundle", "inspect", "src/leafy/leafy.kb", "--json"], built, **shell).stdout)
    names = {variant["id"] for op in found["ops"] for variant in op["variants"]}
    assert {"leafy.squared_relu/vector[T=bf16,VEC=8,THREADS=256]@sm_90a", "leafy.squared_relu_backward/simd[T=f32]@x86-64-v3"} <= names


@pytest.fixture(scope="module")
def wheel(built, shell):
    pytest.importorskip("hatchling", reason="scripts/setup installs hatchling")
    (built / "src/leafy/leafy.kb").unlink()
    said(built, shell, "pip wheel")
    made, = (built / "dist").glob("*.whl")
    return made


def test_a_wheel_has_the_bundle_the_functions_and_an_entry_point(wheel):
    assert wheel.name == "leafy-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        assert {"leafy/__init__.py", "leafy/jax.py", "leafy/pytorch.py", "leafy/leafy.kb"} <= set(names)
        assert not [n for n in names if "tests" in n or ".cu" in n], names
        assert "[kbundle.bundles]\nleafy = leafy:BUNDLE" in file.read("leafy-0.1.0.dist-info/entry_points.txt").decode()
        about = email.message_from_bytes(file.read("leafy-0.1.0.dist-info/METADATA"))
    assert set(about.get_all("Requires-Dist")) == {"kbundle", "kbundle[jax]; extra == 'jax'", "kbundle[torch]; extra == 'torch'"}


def test_a_second_wheel_is_the_same_bytes(wheel, built, shell, tmp_path):
    shutil.copytree(built, tmp_path / "again", ignore=shutil.ignore_patterns("dist", "*.kb", "__pycache__", ".pytest_cache"))
    done = run(["python", "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, "."], tmp_path / "again", **shell)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_what_the_wheel_holds_runs_where_nothing_can_be_built(wheel, shell, tmp_path):
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    programs = ["import jax, leafy.jax; x = jax.numpy.arange(-3.0, 4); print(jax.jit(jax.grad(lambda x: leafy.jax.squared_relu(x).sum()))(x))"]
    if importlib.util.find_spec("torch") is not None:
        programs.append("import torch, leafy.pytorch; x = torch.arange(-3.0, 4, requires_grad=True); leafy.pytorch.squared_relu(x).sum().backward(); "
                        "print(x.grad.numpy())")
    nothing = dict(PATH="/nonexistent", HOME="/nonexistent", PYTHONPATH=f"{tmp_path}/site:{ROOT}/ffi/python")
    for program in programs:
        done = run([sys.executable, "-c", program], tmp_path, **nothing)
        assert done.returncode == 0 and "[0. 0. 0. 0. 2. 4. 6.]" in done.stdout, done.stdout


@pytest.mark.parametrize("key, message", [
    ('bundle = "../out.kb"', "bundle is '../out.kb'; it must be a path below the project's folder"),
    ('manifest = ["kernels"]\nbundle = "src/leafy/leafy.kb"', "it has no key manifest; there are manifests, bundle"),
    ('lean = 1\nbundle = "src/leafy/leafy.kb"', "lean is 1; it must be true or false"),
    ("", "bundle is missing"),
    ('manifests = ["nowhere"]\nbundle = "src/leafy/leafy.kb"', "nowhere"),
], ids=["place", "key", "type", "missing", "folder"])
def test_a_mistake_in_pyproject_names_the_key(built, shell, tmp_path, key, message):
    pytest.importorskip("hatchling", reason="scripts/setup installs hatchling")
    copy = tmp_path / "copy"
    shutil.copytree(built, copy, ignore=shutil.ignore_patterns("dist", "*.kb"))
    text = (copy / "pyproject.toml").read_text()
    head = "[tool.hatch.build.targets.wheel.hooks.kbundle]\n"
    (copy / "pyproject.toml").write_text(text[:text.index(head) + len(head)] + key + "\n")
    done = run(["python", "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", "dist", "."], copy, **shell)
    assert done.returncode and message in done.stdout, done.stdout
    assert not list(copy.rglob("*.kb"))


@pytest.mark.parametrize("name", ["", "9x", "a/b", "Upper", "a-b", "import", "jax", "ml_dtypes", "x" * 65, "..", "é"])
def test_a_name_that_does_not_do_is_refused_and_nothing_is_written(command, tmp_path, name):
    done = run([command, "new", name], tmp_path)
    assert done.returncode == 1 and "cannot be called" in done.stdout, done.stdout
    assert not list(tmp_path.iterdir())


def test_no_module_of_python_is_hidden_by_a_library(command, tmp_path):
    # With src in PYTHONPATH, as the tests have it, `random` would be found before Python's own.
    for name in sorted(name for name in sys.stdlib_module_names if re.fullmatch("[a-z][a-z0-9_]*", name)):
        assert run([command, "new", name], tmp_path).returncode == 1, name
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x", "found", "library", "std", "int"])
def test_a_name_that_its_tests_or_c_use_is_as_good_as_another(command, shell, tmp_path, name):
    assert run([command, "new", name], tmp_path).returncode == 0
    built = run([command, "build", "kernels", "-o", f"src/{name}/{name}.kb", "--target", "host"], tmp_path / name, **shell)
    assert built.returncode == 0, built.stdout
    tested = run([sys.executable, "-m", "pytest", "-q", "tests/test_jax.py"], tmp_path / name, **shell | {"PYTHONPATH": f"src:{shell['PYTHONPATH']}"})
    assert tested.returncode == 0, tested.stdout


def test_what_comes_next_can_be_pasted_whatever_the_folder_is_called(command, tmp_path):
    into = tmp_path / "it's ü $HOME"
    said = run([command, "new", "leafy", "--into", into], tmp_path).stdout
    line, = re.findall("^  cd .*", said, re.M)
    assert run(["sh", "-c", line + " && pwd"], tmp_path).stdout.strip() == str(into / "leafy")


def test_what_stands_there_stays_as_it_is(command, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/work.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("mine", "file"):
        done = run([command, "new", name], tmp_path)
        assert done.returncode == 1 and "nothing was written" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine"]
    assert (tmp_path / "mine/work.txt").read_text() == (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_is_taken_and_json_lists_the_files(command, tmp_path):
    (tmp_path / "deep/leafy").mkdir(parents=True)
    report = json.loads(run([command, "new", "leafy", "--into", "deep", "--json"], tmp_path).stdout)
    assert report["ok"] and report["folder"] == "deep/leafy"
    assert sorted(report["files"]) == sorted(str(p.relative_to(tmp_path / "deep/leafy")) for p in (tmp_path / "deep/leafy").rglob("*") if p.is_file())
    assert not any("@" + "NAME@" in path.read_text() for path in (tmp_path / "deep/leafy").rglob("*") if path.is_file())


def test_a_full_disk_leaves_nothing(command, tmp_path):
    done = run(["bash", "-c", f"ulimit -f 1; exec {command} new leafy"], tmp_path)
    assert done.returncode and not list(tmp_path.iterdir()), done.stdout
