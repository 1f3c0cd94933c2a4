"""Promise: every command that the pages of pages.NAMES show works as it stands (classes.py says how each is held)."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pages  # noqa: E402
from classes import class_of  # noqa: E402

ROOT = pages.ROOT
ALL = [one for page in pages.NAMES for one in pages.said(page)]
FORMS = (("new NAME", "new mylib"), ("MODEL.jsonl [PATH...]", "leaky.jsonl leaky"), ("PATH...", "leaky"), ("OUT.kb", "out.kb"),
         ("FILE VARIANT -o X", "leaky.kb 'leaky.relu/simd@x86-64-v3' -o code"),
         ("FILE OP --operand x=bf16[4,2048] --target T", "kernels.kb softmax.scaled_forward --operand x=bf16[4,2048] --target sm_90a"),
         ("profile -o FILE", "profile -o gpu.json"),
         ("explain-error TAG", "explain-error NOT_FOUND"), ("FILE", "leaky.kb"), ("P.jsonl", "leaky.jsonl"), ("--target T", "--target host"))


def of(kind, everything=ALL):
    return [one for one in everything if class_of(one) == kind]


def filled(text):
    """A form with its capitals filled in and its brackets, which say that a part may be left out, taken off."""
    for form, real in FORMS if re.search(r"\b[A-Z]+(\.\w+)?\b", text) else ():
        text = text.replace(form, real)
    return re.sub(r"\[(--[^][]*)\]", r"\1", text)


@pytest.fixture(scope="module")
def desk(command, tmp_path_factory):
    """A folder from which the pages' commands run: kernels/, its bundle, the page's own files, no GPU to be seen."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    (folder / "leaky").mkdir()
    for block in pages.blocks("docs/whole-library.md"):
        if block.name:
            (folder / "leaky" / block.name).write_text(block.text)
    (folder / "leaky.jsonl").write_text('{"op": "leaky.relu", "operands": {"x": "f32[12,5]"}, "attributes": {"slope": 0.5}}\n')
    (folder / "model.jsonl").write_text('{"op": "softmax.scaled_forward", "operands": {"x": "f32[128,128]"}, "attributes": {"scale": 1.0}}\n')
    (folder / "build").mkdir()
    assert (ROOT / "build/kernels.kb").exists(), "run `build/release/kbundle build kernels -o build/kernels.kb`"
    for name in ("build/kernels.kb", "kernels.kb"):
        (folder / name).symlink_to(ROOT / "build/kernels.kb")
    path = [str(pathlib.Path(command).parent), str(ROOT / ".venv/bin"), os.environ["PATH"]]
    env = dict(os.environ, PATH=os.pathsep.join(path), PYTHONPATH=str(ROOT / "ffi/python"), JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="")

    def run(text, timeout=600):
        return subprocess.run(["bash", "-euc", text], cwd=folder, env=env, capture_output=True, text=True, timeout=timeout)

    assert run("kbundle build leaky -o leaky.kb").returncode == 0
    run.folder = folder
    return run


def test_every_command_is_in_a_class():
    lost = [str(one) for one in ALL if class_of(one) is None]
    assert not lost, "say in tests/readme/classes.py how these are tested:\n" + "\n".join(lost)
    assert len(ALL) > 50


@pytest.mark.parametrize("page", pages.NAMES)
def test_commands_that_need_no_gpu_run_as_they_stand(page, desk):
    for one in of("run", [one for one in ALL if one.page == page]):
        done = desk(filled(one.text))
        assert done.returncode == 0, f"{one}\n{filled(one.text)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


@pytest.mark.parametrize("one", of("answers"), ids=str)
def test_what_asks_about_the_tree_is_understood(one, desk):
    done = desk(filled(one.text))
    assert done.returncode in (0, 1), done.stderr


@pytest.mark.parametrize("one", of("gpu"), ids=str)
def test_commands_for_a_gpu_are_understood_and_find_none(one, desk):
    text = one.text.replace("--target T", "--target sm_90a").replace("algorithms PATH...", "algorithms kernels/matmul")
    done = desk(filled(text))
    assert done.returncode == 3, f"{filled(one.text)}: {done.returncode}\n{done.stderr}"


def test_commands_for_a_gpu_are_all_run_by_a_section_of_gpu_check():
    sys.path.insert(0, str(ROOT / "tests/gpu"))
    from runtime import page_commands
    import run
    assert run.SECTIONS["page_commands"][0] == ["runtime/page_commands.py"]
    assert [said for said, _ in page_commands.commands()] == of("gpu")


def test_the_two_commands_are_what_continuous_integration_runs_in_this_order():
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith(("scripts/", "exec scripts/"))]
    assert lines == ["scripts/demo", "exec scripts/check"]
    assert of("ci")


@pytest.mark.parametrize("one", of("step"), ids=str)
def test_steps_of_the_check_are_there_with_these_words(one):
    assert one.text in (ROOT / "scripts/check").read_text()


def test_the_commands_of_the_authors_page_are_its_road_which_is_run_whole():
    [road] = [block for block in pages.blocks("builder/AUTHORING.md") if block.language == "sh"]
    assert of("road") == list(pages.commands_in(road))


@pytest.mark.parametrize("one", of("install"), ids=str)
def test_packages_that_are_installed_are_what_the_references_need(one, desk):
    packages = one.text.split(" install ")[1].split()
    done = desk(f"python -c 'import {', '.join(packages)}'")
    assert done.returncode == 0, done.stderr
    assert " ".join(packages) in (ROOT / "builder/tune/reference.py").read_text()


def lines_of(*words):
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check_cmake(words):
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    kind = {"cmake": "configurePresets", "ctest": "testPresets"}[words[0]]
    if "--build" in words:
        words, kind = [w for w in words if w != "--build"], "buildPresets"
    assert words[words.index("--preset") + 1] in {p["name"] for p in presets[kind] if not p.get("hidden")}
    if "--target" in words:
        known = {line.split(":")[0] for line in lines_of("ninja", "-C", "build/release", "-t", "targets", "all")}
        assert set(words[words.index("--target") + 1:]) <= known
    if "-R" in words:
        names = lines_of("ctest", "--test-dir", "build/release", "-N", "-R", words[words.index("-R") + 1])
        assert "Total Tests: 0" not in "\n".join(names)


@pytest.mark.parametrize("one", of("names"), ids=str)
def test_what_a_long_command_names_exists(one):
    for part in one.text.split(" && "):
        words = shlex.split(part)
        if words[0] in ("cmake", "ctest"):
            check_cmake(words)
        elif "pytest" in words:
            assert any("<Function" in line or "::" in line for line in lines_of(*words, "--collect-only"))
        else:
            assert (ROOT / words[0]).exists(), "run `cmake --build --preset release`"
            assert any(line.startswith("  ") for line in lines_of(*words, "--gtest_list_tests"))


@pytest.mark.parametrize("one", of("script"), ids=str)
def test_a_script_is_there_and_says_what_it_does(one):
    name = one.text.split()[0]
    text = (ROOT / name).read_text()
    assert os.access(ROOT / name, os.X_OK) and (f"#   {name}" in text or f"\n    {name}" in text)  # of a shell, of Python


@pytest.mark.parametrize("one", of("program") + of("file"), ids=str)
def test_a_program_or_file_is_there(one):
    path = ROOT / one.text.split()[-1]
    assert path.exists()
    if path.suffix == ".py":
        compile(path.read_text(), str(path), "exec")


@pytest.mark.parametrize("one", of("mention"), ids=str)
def test_words_of_a_mention_are_the_commands_own(one, command):
    words = shlex.split(one.text.split("/")[-1])
    done = subprocess.run([command, words[1], "--help"], capture_output=True, text=True)
    assert done.returncode == 0, one
    for word in words[2:]:
        if word.startswith("--"):
            assert re.search(re.escape(word) + r"\b", done.stdout), f"{one}: no {word}"
