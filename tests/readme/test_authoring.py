"""The example of builder/AUTHORING.md is whole: as printed it is tuned, tested, built, spread, proved and used."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = {"gain.toml", "gain.cu", "gain_host.cc", "reference.py", "use_gain.py"}
SPREAD = {"spread.sh", "spread.sbatch"}
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def test_the_authors_road_ends_in_a_proof(tmp_path, command):
    blocks = BLOCK.findall((ROOT / "builder/AUTHORING.md").read_text())
    for _, name, text in blocks:
        if name:
            (tmp_path / name).write_text(text)
    assert {p.name for p in tmp_path.iterdir()} == LIBRARY | SPREAD
    [road] = [text for language, _, text in blocks if language == "sh"]
    folders = [str(pathlib.Path(command).parent), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
    env = dict(os.environ, PATH=os.pathsep.join(folders), KBUNDLE_PYTHON=sys.executable, PYTHONPATH=str(ROOT / "ffi/python"),
               JAX_PLATFORMS="cpu")
    ran = subprocess.run(["bash", "-euxc", road], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "each has an exact variant" in ran.stdout and (tmp_path / "ran_on.jsonl").exists()
    levels = re.findall(r"^ok  gain\.scale/simd\[T=(\w+)\]@x86-64-v\d", ran.stdout, re.M)
    assert set(levels) == {"f32", "f16", "bf16"}


@pytest.mark.parametrize("script", sorted(SPREAD))
def test_a_build_spread_as_printed_is_the_build(tmp_path, command, script):
    blocks = {name: text for _, name, text in BLOCK.findall((ROOT / "builder/AUTHORING.md").read_text()) if name}
    for name in LIBRARY | {script}:
        (tmp_path / name).write_text(blocks[name])
    (tmp_path / "shared").mkdir()
    env = dict(os.environ, PATH=os.pathsep.join([str(pathlib.Path(command).parent), os.environ["PATH"]]), KBUNDLE_CACHE=str(tmp_path / "own"))
    env.pop("KBUNDLE_SHARED_CACHE", None)

    def run(*words, **more):
        done = subprocess.run(words, cwd=tmp_path, env=env | more, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    if script == "spread.sh":
        assert "compiled in" in run("bash", script)
    else:
        (tmp_path / "plan.json").write_text(run("kbundle", "build", ".", "--plan"))
        shared = {"KBUNDLE_SHARED_CACHE": str(tmp_path / "shared"), "SLURM_ARRAY_TASK_COUNT": "2"}
        for task in "01":
            assert "compiled in" in run("bash", script, SLURM_ARRAY_TASK_ID=task, KBUNDLE_CACHE=str(tmp_path / task), **shared)
        run("kbundle", "build", ".", "--no-compile", "-o", "gain.kb", KBUNDLE_SHARED_CACHE=f"{tmp_path}/shared:ro")
    run("kbundle", "build", ".", "-o", "plain.kb", "--name", "gain", KBUNDLE_CACHE=str(tmp_path / "plain"))
    assert (tmp_path / "gain.kb").read_bytes() == (tmp_path / "plain.kb").read_bytes()
