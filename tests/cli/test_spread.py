"""A build may be spread: `build --plan` says which command makes each unit, `compile-unit` makes one anywhere, and what was made that way
is the build, byte by byte; nothing is made of other sources, and nothing that fails leaves half of it."""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

import pytest
from cli.command import HOST_TARGETS, Command
from cli.tiny import write_tiny

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = """\
#include "kbundle/host_kernel.h"
static void %s(int64_t begin, int64_t end, int32_t* y, const int32_t* x) {
  for (int64_t i = begin; i < end; ++i) y[i] = -x[i];
}
KB_HOST_KERNEL(%s_i32, %s);
"""


def plan_of(kbundle, *paths, **more):
    done = kbundle("build", *paths, "--plan", "--target", HOST_TARGETS, **more)
    assert done.code == 0, done.err
    return done.json


def counting_compiler(folder, body=""):
    """c++ that leaves a line in the returned file each time that it compiles something, after doing `body` (sh)."""
    script, log = folder / "counting-c++", folder / "compiles.log"
    script.write_text(f"""#!/bin/sh
case "$*" in *-print-prog-name*|*--version*) ;; *) echo "$*" >> {log}; {body} ;; esac
exec c++ "$@"
""")
    script.chmod(0o755)
    log.touch()
    return {"KBUNDLE_CXX": str(script)}, log


def objects(cache):
    return sorted(path for path in (cache / "v1/objects").rglob("*") if path.is_file())


def test_commands_of_a_plan_in_a_copy_of_the_tree_are_the_build(command, tmp_path):
    write_tiny(tmp_path / "here/lib/tiny")
    shared, worker, home = tmp_path / "shared", tmp_path / "worker", tmp_path / "home"
    shared.mkdir()
    compiler, log = counting_compiler(tmp_path)
    here = Command(command, tmp_path / "cache", home)
    here.environment |= compiler
    plan = plan_of(here, "lib", cwd=tmp_path / "here")
    assert plan["missing"] == len(plan["units"]) == 4 and log.read_text() == ""
    shutil.copytree(tmp_path / "here", tmp_path / "far/away from here")
    shutil.move(tmp_path / "here", tmp_path / "moved")  # nothing may be read from where it was

    lines = "".join(shlex.join(unit["command"]) + "\n" for unit in plan["units"])
    environment = here.environment | {"KBUNDLE_CACHE": str(worker), "KBUNDLE_SHARED_CACHE": str(shared),
                                      "PATH": f"{pathlib.Path(command).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(["xargs", "-d", "\n", "-P", "2", "-n", "1", "sh", "-c"], input=lines, text=True, capture_output=True,
                         cwd=tmp_path / "far/away from here", env=environment, timeout=120)
    assert ran.returncode == 0 and ran.stdout.count("compiled in") == 4, ran.stdout + ran.stderr
    made = log.read_text()

    shutil.move(tmp_path / "moved", tmp_path / "here")
    spread = here("build", "lib", "-o", tmp_path / "spread.kb", "--name", "n", "--target", HOST_TARGETS, "--no-compile", "--json",
                  "--shared-cache", f"{shared}:ro", cwd=tmp_path / "here")
    assert spread.code == 0 and spread.json["compiled"] == 0 and spread.json["reused"] == 4, spread.err
    assert log.read_text() == made, "no compiler ran, for parameter types neither"
    plain = Command(command, tmp_path / "plain", home)
    assert plain.build(tmp_path / "here/lib", tmp_path / "plain.kb", "--name", "n", env=compiler).code == 0
    assert (tmp_path / "spread.kb").read_bytes() == (tmp_path / "plain.kb").read_bytes()


def test_a_plan_file_and_a_number_do_the_same(kbundle, tiny, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(kbundle, "tiny", cwd=tmp_path)))
    for number in range(4):
        done = kbundle("compile-unit", "--plan", "plan.json", "--number", number, "--json", cwd=tmp_path)
        assert done.code == 0 and done.json["compiled"] and done.json["bytes"] > 0 and done.json["seconds"] > 0, done.err
    assert not kbundle("compile-unit", "--plan", "plan.json", "--number", 2, "--json", cwd=tmp_path).json["compiled"]
    assert kbundle.build(tiny, tmp_path / "x.kb", "--no-compile").code == 0
    again = plan_of(kbundle, "tiny", cwd=tmp_path)
    assert again["missing"] == 0 and all(unit["stored"] and not unit["why"] for unit in again["units"])


def test_a_plan_names_every_source_by_what_sha256sum_says(kbundle, tiny, tmp_path):
    units = plan_of(kbundle, "tiny", cwd=tmp_path)["units"]
    named = {(row["file"], row["sha256"]) for unit in units for row in unit["inputs"] if "file" in row}
    assert {file for file, _ in named} == {"scale.cc", "rows.h", "negate.cc"}
    for file, digest in named:
        said = subprocess.run(["sha256sum", tiny.parent / file], capture_output=True, text=True, check=True)
        assert said.stdout.split()[0] == digest


def test_a_header_that_changed_since_the_plan_is_refused_by_name(kbundle, tiny, tmp_path):
    plan = plan_of(kbundle, "tiny", cwd=tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tiny.parent / "rows.h").write_text("#define ROWS_ZERO T{0}\n")
    for unit in plan["units"]:
        for words in (unit["command"][1:], ["compile-unit", "--plan", "plan.json", "--number", str(unit["number"])]):
            done = kbundle(*words, cwd=tmp_path)
            if unit["source"] == "negate.cc":
                assert done.code == 0
            else:
                assert done.code == 1 and "rows.h changed" in done.err and "scale.cc changed" not in done.err, done.err
    assert len(objects(tmp_path / "cache")) == 2


def test_a_key_alone_is_refused_with_what_there_is_here(kbundle, tiny, tmp_path):
    unit = next(unit for unit in plan_of(kbundle, tiny)["units"] if unit["source"] == "scale.cc")
    words = ["compile-unit", tiny, "--target", unit["target"], "--unit", unit["unit"], "--key"]
    done = kbundle(*words, "0" * 64)
    assert done.code == 1 and unit["key"] in done.err and "--input 'rows.h=" in done.err
    assert kbundle(*words, unit["key"]).code == 0


def test_two_that_make_the_same_unit_at_once_agree(kbundle, tiny, tmp_path):
    compiler, log = counting_compiler(tmp_path, "sleep 0.3")
    (tmp_path / "shared").mkdir()
    unit = plan_of(kbundle, tiny, env=compiler)["units"][0]
    makers = [kbundle.start(*unit["command"][1:], "--shared-cache", tmp_path / "shared",
                            env=compiler | {"KBUNDLE_CACHE": str(tmp_path / f"cache{i % 2}")}) for i in range(4)]
    for maker in makers:
        _, err = maker.communicate(timeout=60)
        assert maker.returncode == 0, err
    assert len(log.read_text().splitlines()) > 2, "they did not run side by side"
    stored = [objects(tmp_path / name) for name in ("cache0", "cache1", "shared")]
    assert all(len(found) == 1 for found in stored) and len({found[0].read_bytes() for found in stored}) == 1
    assert kbundle("cache", "verify", "--cache", tmp_path / "shared").code == 0


def test_a_shared_cache_that_is_only_read_gives_and_takes_nothing(kbundle, tiny, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    first, second = plan_of(kbundle, tiny)["units"][:2]
    assert kbundle(*first["command"][1:], "--shared-cache", shared).code == 0
    before = sorted(shared.rglob("*"))
    for unit, compiled in ((first, False), (second, True)):
        done = kbundle(*unit["command"][1:], "--cache", tmp_path / "mine", "--shared-cache", f"{shared}:ro", "--json")
        assert done.code == 0 and done.json["compiled"] is compiled, done.err
    assert sorted(shared.rglob("*")) == before and len(objects(tmp_path / "mine")) == 2


def test_what_one_had_before_goes_into_the_shared_cache_too(kbundle, tiny, tmp_path):
    (tmp_path / "shared").mkdir()
    assert kbundle.build(tiny, tmp_path / "a.kb", "--name", "n").code == 0
    for unit in plan_of(kbundle, tiny)["units"]:
        done = kbundle(*unit["command"][1:], "--shared-cache", tmp_path / "shared", "--json")
        assert done.code == 0 and not done.json["compiled"]
    built = kbundle.build(tiny, tmp_path / "b.kb", "--name", "n", "--no-compile", "--cache", tmp_path / "new", "--shared-cache",
                          tmp_path / "shared")
    assert built.code == 0 and (tmp_path / "a.kb").read_bytes() == (tmp_path / "b.kb").read_bytes(), built.err


def test_a_cache_that_does_not_take_it_is_an_error(kbundle, tiny, tmp_path):
    command = plan_of(kbundle, tiny)["units"][0]["command"][1:]
    done = kbundle(*command, "--shared-cache", tmp_path / "not-mounted")
    assert done.code == 1 and "not-mounted" in done.err and not (tmp_path / "not-mounted").exists()
    (tmp_path / "file").touch()
    done = kbundle(*command, "--cache", tmp_path / "file")
    assert done.code == 1 and "--cache" in done.err


def test_a_kill_leaves_nothing_half(kbundle, tiny, tmp_path):
    compiler, log = counting_compiler(tmp_path, "sleep 30")
    unit = plan_of(kbundle, tiny, env=compiler)["units"][0]
    maker = kbundle.start(*unit["command"][1:], env=compiler)
    deadline = time.monotonic() + 30
    while not log.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    maker.send_signal(signal.SIGKILL)
    maker.communicate(timeout=20)
    assert maker.returncode == -signal.SIGKILL and not objects(tmp_path / "cache")
    assert kbundle("cache", "verify").code == 0
    pathlib.Path(compiler["KBUNDLE_CXX"]).write_text(pathlib.Path(compiler["KBUNDLE_CXX"]).read_text().replace("sleep 30", ""))
    unit = plan_of(kbundle, tiny, env=compiler)["units"][0]
    assert kbundle(*unit["command"][1:], env=compiler).code == 0 and len(objects(tmp_path / "cache")) == 1


def test_a_damaged_object_is_found_and_made_again(kbundle, tiny, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    units = plan_of(kbundle, tiny)["units"]
    for unit in units:
        assert kbundle(*unit["command"][1:], "--shared-cache", shared).code == 0
    [harmed] = [path for path in objects(shared) if path.name == units[1]["key"]]
    whole = harmed.read_bytes()
    for cut in (whole[:-1] + b"?", whole[:100], b""):
        for path in (harmed, next(path for path in objects(tmp_path / "cache") if path.name == harmed.name)):
            path.chmod(0o644)
            path.write_bytes(cut)
        refused = kbundle.build(tiny, tmp_path / "x.kb", "--no-compile", "--shared-cache", shared)
        assert refused.code == 1 and units[1]["unit"] in refused.err and "lacks 1 of 4" in refused.err
        done = kbundle(*units[1]["command"][1:], "--shared-cache", shared, "--json")
        assert done.code == 0 and done.json["compiled"] and harmed.read_bytes() == whole
    assert kbundle.build(tiny, tmp_path / "x.kb", "--no-compile", "--shared-cache", shared).code == 0


def test_no_compile_lists_what_is_missing_and_its_command_works(kbundle, tiny, tmp_path):
    refused = kbundle.build(tiny, tmp_path / "x.kb", "--no-compile", "--json")
    assert refused.code == 1 and refused.json["error"]["code"] == "FAILED_PRECONDITION" and not (tmp_path / "x.kb").exists()
    commands = [line.strip() for line in refused.json["error"]["message"].splitlines() if line.startswith("  kbundle compile-unit ")]
    assert len(commands) == 4
    for command in commands:
        assert kbundle(*shlex.split(command)[1:]).code == 0
    assert kbundle.build(tiny, tmp_path / "x.kb", "--no-compile").code == 0


def test_families_of_one_folder_may_share_a_source(kbundle, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    text = tiny.read_text()
    second = '[family]\nname = "second"\nreference = "reference.py"\n\n' + text[text.index("[op.negate]"):].replace("negate", "minus")
    (tmp_path / "tiny/second.toml").write_text(second.replace('"minus.cc"', '"negate.cc"'))
    (tmp_path / "tiny/negate.cc").write_text(KERNEL % (("Negate", "negate", "Negate")) + (KERNEL % ("Minus", "minus", "Minus")).split("\n", 1)[1])
    (tmp_path / "tiny/reference.py").write_text((tmp_path / "tiny/reference.py").read_text() + "\n\ndef minus(x):\n    return -x\n")
    plan = plan_of(kbundle, "tiny", cwd=tmp_path)
    assert len(plan["units"]) == 4
    for unit in plan["units"]:
        assert len(unit["manifests"]) == 2
        done = kbundle(*unit["command"][1:], cwd=tmp_path)
        assert done.code == 0, done.err
    assert kbundle.build(tiny.parent, tmp_path / "x.kb", "--no-compile").code == 0


def test_a_tree_above_the_folder_is_named_by_its_place(kbundle, tiny, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    unit = plan_of(kbundle, "../tiny", cwd=tmp_path / "elsewhere")["units"][0]
    assert unit["manifests"] == [str(tiny)]
    assert kbundle(*unit["command"][1:], cwd="/").code == 0


def test_a_plan_of_nothing(kbundle, tiny, tmp_path):
    done = kbundle("build", tiny, "--plan", "--target", "sm_90a")
    assert done.code == 1 and "nothing to build" in done.err and done.out == ""
    (tmp_path / "none").mkdir()
    (tmp_path / "none/fill.toml").write_text("""\
[family]
name      = "fill"
reference = "reference.py"
[op.zero]
summary  = "y = 0"
types    = { T = ["f32"] }
operands = { x = "T[N]" }
results  = { y = "T[N]" }
[[op.zero.variant]]
name     = "memset"
provider = "cuda"
source   = "none.cu"
steps    = [{ memset = "y", value = 0 }]
""")
    (tmp_path / "none/none.cu").touch()
    (tmp_path / "none/reference.py").write_text("def zero(x):\n    return 0 * x\n")
    done = kbundle("build", tmp_path / "none", "--plan", "--target", "sm_90a")
    assert done.code == 0, done.err
    (tmp_path / "plan.json").write_text(done.out)
    number = kbundle("compile-unit", "--plan", tmp_path / "plan.json", "--number", len(done.json["units"]))
    assert number.code == 1 and "the plan has" in number.err


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\0", "\xff\xfe", '{"build_plan": 1}', '{"build_plan": 1, "units": 5}', "[" * 1000000,
                                  '{"build_plan": "1", "units": [{}]}', '{"build_plan": 1, "units": [{}]}', '{"a": ' * 100000])
def test_a_file_that_is_no_plan_is_an_error_in_words(kbundle, tmp_path, text):
    (tmp_path / "plan.json").write_text(text, encoding="latin-1")
    done = kbundle("compile-unit", "--plan", tmp_path / "plan.json", "--number", 0, "--json")
    assert done.code == 1 and done.json["error"]["code"] == "INVALID_ARGUMENT" and "plan.json" in done.err and "internal" not in done.err


def test_a_plan_is_never_run(kbundle, tiny, tmp_path):
    plan = plan_of(kbundle, tiny)
    for unit in plan["units"]:
        unit["command"] = unit["compiler_command"] = ["touch", str(tmp_path / "ran")]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert kbundle("compile-unit", "--plan", tmp_path / "plan.json", "--number", 0).code == 0 and not (tmp_path / "ran").exists()
    plan["units"][0]["manifests"] = [f"{tiny.parent}/../tiny/tiny.toml"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = kbundle("compile-unit", "--plan", tmp_path / "plan.json", "--number", 0)
    assert done.code == 1 and ".." in done.err


@pytest.mark.parametrize("words, said", [
    ([], "PATH"), (["x"], "--unit"), (["--number", "1"], "--plan"), (["--plan", "p"], "--number"), (["--plan", "p", "--number", "-1"], "--number"),
    (["x", "--plan", "p", "--number", "1"], "leave them out"), (["--plan", "p", "--number", "1", "--key", "k"], "leave them out"),
    (["x", "--unit", "u", "--input", "rows.h"], "NAME=SHA256"), (["x", "--unit", "u", "--target", "sm_90q"], "sm_90q"),
    (["x", "--unit", "u", "--target", "host,,portable"], "empty name"), (["x", "--unit", "u", "--provider", "cuda,magic"], "magic"),
])
def test_words_that_do_not_go_together_are_a_usage_error(kbundle, words, said):
    done = kbundle("compile-unit", *words)
    assert done.code == 2 and said in done.err, done.err


def test_a_unit_that_is_not_there_or_wrong_says_so(kbundle, tiny):
    done = kbundle("compile-unit", tiny, "--unit", "tiny/negat.cc@x86-64-v2", "--target", "x86-64-v2")
    assert done.code == 1 and "tiny/negate.cc@x86-64-v2" in done.err
    (tiny.parent / "negate.cc").write_text("#error on purpose\n")
    done = kbundle("compile-unit", tiny, "--unit", "tiny/negate.cc@x86-64-v2", "--target", "x86-64-v2", "--json")
    assert done.code == 1 and "on purpose" in done.err and "on purpose" in done.json["failures"][0]
    done = kbundle("compile-unit", tiny, "--unit", "tiny/negate.cc@x86-64-v2", "--target", "x86-64-v2", env={"KBUNDLE_CXX": "/none"})
    assert done.code == 3


@pytest.fixture(scope="module")
def kernels_plan(command, tmp_path_factory):
    home = tmp_path_factory.mktemp("plan")
    run = Command(command, home / "cache", home)
    begin = time.monotonic()
    done = run("build", "kernels", "--plan", cwd=ROOT)
    assert done.code == 0, done.err
    assert time.monotonic() - begin < 30  # 0.4 s where the digests of tools are known
    return run, done.json


def test_each_command_of_kernels_sees_the_unit_that_the_plan_saw(kernels_plan):
    run, plan = kernels_plan
    keys = {}
    for unit in plan["units"]:
        keys.setdefault((tuple(unit["manifests"]), unit["target"]), set()).add((unit["unit"], unit["key"]))
    for (manifests, target), expected in keys.items():
        alone = run("build", *manifests, "--target", target, "--plan", cwd=ROOT).json
        assert {(unit["unit"], unit["key"]) for unit in alone["units"]} == expected, (manifests, target)


@pytest.mark.parametrize("compiler", ["nvrtc", "c++", "triton", "cudnn", "algorithm", "cute"])
def test_every_kind_of_unit_is_made_as_a_build_makes_it(kernels_plan, tmp_path, compiler):
    run, plan = kernels_plan
    unit = next(unit for unit in reversed(plan["units"]) if unit["compiler"] == compiler)
    done = run(*unit["command"][1:], "--cache", tmp_path / "alone", "--json", cwd=ROOT)
    assert done.code == 0 and done.json["compiled"] and done.json["key"] == unit["key"], done.err
    built = run("build", *unit["manifests"], "--only", unit["unit"], "--target", unit["target"], "--cache", tmp_path / "whole", cwd=ROOT)
    assert built.code == 0, built.err
    [alone] = objects(tmp_path / "alone")
    [same] = [path for path in objects(tmp_path / "whole") if path.name == unit["key"]]
    assert alone.name == unit["key"] and alone.read_bytes() == same.read_bytes()
