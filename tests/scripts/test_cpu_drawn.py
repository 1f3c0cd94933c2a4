"""Promise: scripts/cpu_drawn.py compares like with like: at any drawn shape both sides of a family take the same operands and give results of one
shape, which is the same again for the same seed; and a family that it does not know is an error that names those it does."""

import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import kbundle

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import cpu_drawn  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def kernels():
    kbundle.use(str(ROOT / "build/kernels.kb"))


@pytest.mark.parametrize("family", cpu_drawn.FAMILIES)
def test_both_sides_compute_the_same(family):
    draw, again = cpu_drawn.Draw(7), cpu_drawn.Draw(7)
    for _ in range(3):
        title, plain, ours, operands = cpu_drawn.FAMILIES[family](draw, family)
        assert cpu_drawn.FAMILIES[family](again, family)[0] == title
        found, wanted = (jax.tree.leaves(function(*operands))[0] for function in (ours, plain))
        assert found.shape == wanted.shape and found.dtype == wanted.dtype, title
        difference = np.abs(np.asarray(found, np.float32) - np.asarray(wanted, np.float32))
        assert np.mean(difference) <= 0.02 * np.mean(np.abs(np.asarray(wanted, np.float32))), title


def test_an_unknown_family_is_named_beside_those_there_are():
    done = subprocess.run([sys.executable, ROOT / "scripts/cpu_drawn.py", "normes"], capture_output=True, text=True)
    assert done.returncode == 2 and "no family normes; there are rms_norm layer_norm" in done.stderr
