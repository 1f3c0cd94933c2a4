"""Promise: scripts/wheel writes wheels that pip installs and Python finds, the same bytes from the same files; the package of kernels/ holds
every function that a family brings along. (Compiling and using them is `scripts/wheel --check`.)"""

import base64
import csv
import hashlib
import importlib.metadata
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import wheel_file  # noqa: E402

FILES = {"mylib/__init__.py": b"BUNDLE = 'x.kb'\n", "mylib/x.kb": bytes(range(256))}
ENTRY = "[kbundle.bundles]\nmylib = mylib:BUNDLE\n"


def write(folder, files=FILES):
    about = wheel_file.metadata("my-lib", "1.2", "A library", requires=["numpy; extra == 'more'"], extras=["more"])
    return wheel_file.write(folder, "my-lib", "1.2", "py3-none-any", files, about, ENTRY, {"LICENSE": b"free\n"})


def test_the_same_files_give_the_same_bytes(tmp_path):
    first, again = write(tmp_path / "a"), write(tmp_path / "b", dict(reversed(FILES.items())))
    assert first.name == "my_lib-1.2-py3-none-any.whl" and first.read_bytes() == again.read_bytes()
    assert write(tmp_path / "c", FILES | {"mylib/y.py": b""}).read_bytes() != first.read_bytes()


def test_the_record_is_true(tmp_path):
    with zipfile.ZipFile(write(tmp_path)) as wheel:
        rows = list(csv.reader(wheel.read("my_lib-1.2.dist-info/RECORD").decode().splitlines()))
        assert [row[0] for row in rows[:-1]] == sorted(set(wheel.namelist()) - {"my_lib-1.2.dist-info/RECORD"}) and rows[-1][1:] == ["", ""]
        for name, digest, size in rows[:-1]:
            data = wheel.read(name)
            assert len(data) == int(size)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def test_pip_installs_it_and_python_finds_its_entry_points(tmp_path):
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--target",
                    tmp_path / "site", write(tmp_path)], check=True)
    [found] = importlib.metadata.distributions(path=[str(tmp_path / "site")])
    assert (found.name, found.version, found.metadata["License"]) == ("my-lib", "1.2", "Apache-2.0")
    [entry] = found.entry_points
    assert (entry.group, entry.name, entry.value) == ("kbundle.bundles", "mylib", "mylib:BUNDLE")
    assert (tmp_path / "site/mylib/x.kb").read_bytes() == FILES["mylib/x.kb"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """What the build makes of kernels/ for Python, without a library and a bundle."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run(["cmake", "-D", f"KERNELS={ROOT}/kernels", "-D", f"PYTHON={folder}", "-D", "VERSION=7.8", "-P",
                    ROOT / "ffi/python/install.cmake"], check=True)
    return folder


def test_the_package_of_kernels_has_the_functions_of_every_family(packages):
    code = "import kbundle_kernels.jax as k, kbundle_kernels; print(kbundle_kernels.BUNDLE, *k.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={
        "PYTHONPATH": f"{packages}:{ROOT}/ffi/python", "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr
    bundle, *names = done.stdout.split()
    assert bundle == str(packages / "kbundle_kernels/kernels.kb")
    written = {name for path in ROOT.glob("kernels/*/jax*.py") if path.parent.name != "python"
               for name in re.findall(r'"(\w+)"', re.search(r"^__all__ = \[(.*?)\]", path.read_text(), re.M | re.S)[1])}
    assert set(names) == written and len(names) > 10


def test_the_package_of_kernels_has_what_every_family_has_for_pytorch(packages):
    written = {path.name.replace("pytorch", path.parent.name, 1) for path in ROOT.glob("kernels/*/pytorch*.py") if path.parent.name != "python"}
    assert {path.name for path in (packages / "kbundle_kernels/pytorch").iterdir()} == written | {"__init__.py"} and len(written) > 2


def test_the_package_of_kernels_is_found_as_an_installed_one(packages):
    [found] = importlib.metadata.distributions(path=[str(packages)])
    assert (found.name, found.version) == ("kbundle-kernels", "7.8")
    assert {entry.group for entry in found.entry_points} == {"kbundle.bundles", "kbundle.jax", "kbundle.torch"}


def test_what_the_wheels_are_made_with_is_pinned_by_digest():
    lines = [line for line in (ROOT / "scripts/requirements-wheel.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 3 and all(re.fullmatch(r"[\w-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
