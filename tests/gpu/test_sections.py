"""Each section of scripts/gpu_check, by name: passes where there is a GPU, a skip with its reason elsewhere."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("section", run.SECTIONS)
def test_gpu_section_passes(section, tmp_path):
    count = len(run.devices()[0])
    if count < run.SECTIONS[section][2]:
        pytest.skip(f"needs {run.SECTIONS[section][2]} CUDA device(s), there is {count}: run scripts/gpu_check on such a machine")
    ran = subprocess.run([str(ROOT / "scripts/gpu_check"), section, "--out", str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:]
