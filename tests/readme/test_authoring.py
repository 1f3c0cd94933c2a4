"""The example of builder/AUTHORING.md is whole: as printed it is tuned, tested, built, proved and used."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def test_the_authors_road_ends_in_a_proof(tmp_path, command):
    blocks = BLOCK.findall((ROOT / "builder/AUTHORING.md").read_text())
    for _, name, text in blocks:
        if name:
            (tmp_path / name).write_text(text)
    assert {p.name for p in tmp_path.iterdir()} == {"gain.toml", "gain.cu", "gain_host.cc", "reference.py", "use_gain.py"}
    [road] = [text for language, _, text in blocks if language == "sh"]
    folders = [str(pathlib.Path(command).parent), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
    env = dict(os.environ, PATH=os.pathsep.join(folders), KBUNDLE_PYTHON=sys.executable, PYTHONPATH=str(ROOT / "ffi/python"),
               JAX_PLATFORMS="cpu")
    ran = subprocess.run(["bash", "-euxc", road], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "each has an exact variant" in ran.stdout and (tmp_path / "ran_on.jsonl").exists()
    levels = re.findall(r"^ok  gain\.scale/simd\[T=(\w+)\]@x86-64-v\d", ran.stdout, re.M)
    assert set(levels) == {"f32", "f16", "bf16"}
