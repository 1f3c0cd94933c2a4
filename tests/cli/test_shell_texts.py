"""Promise: completions and the manual page know every verb and option of --help, in each shell's own notation; every verb has --json, --quiet and
--verbose, and they mean the same of each."""

import os
import re
import shutil
import subprocess

import pytest
from cli.test_terminal import on_a_terminal

SHELLS = ("bash", "zsh", "fish")


def verbs_of(kbundle):
    """{verb: its long options}, as --help prints them."""
    listed = re.findall(r"^  ([a-z-]+) +[A-Z]", kbundle("--help").out.split("Subcommands:")[1].split("\n\n")[0], re.M)
    return {verb: re.findall(r"^  (?:-\w,)?(--[a-z-]+)", kbundle(verb, "--help").out, re.M) for verb in listed}


@pytest.fixture(scope="module")
def shell_of():
    def found(name):
        return shutil.which(name) or pytest.skip(f"no {name} here: apt-get install {name}")
    return found


def test_every_verb_and_option_is_in_each_completion_and_in_the_manual(kbundle):
    verbs = verbs_of(kbundle)
    assert len(verbs) >= 16
    texts = {shell: kbundle("completion", shell).out for shell in SHELLS} | {"man": kbundle("man").out.replace("\\-", "-")}
    for verb, options in verbs.items():
        for where, text in texts.items():
            assert verb in text, (verb, where)
            assert not [o for o in options if (f"-l {o[2:]} " if where == "fish" else o) not in text], (verb, where)


def test_every_verb_has_what_is_every_verbs(kbundle):
    for verb, options in verbs_of(kbundle).items():
        assert {"--json", "--quiet", "--verbose"} <= set(options), verb


def test_a_text_is_json_too(kbundle):
    for words in (["man"], ["completion", "bash"], ["completion", "zsh"], ["completion", "fish"]):
        done = kbundle(*words, "--json")
        assert done.code == 0 and done.json == {"text": kbundle(*words).out}
    assert kbundle("schema", "--json").json == kbundle("schema").json
    assert kbundle("completion", "csh", "--json").json["error"]["code"] == "INVALID_ARGUMENT"


def test_verbose_tells_what_decides_each_part_and_the_time(kbundle, tiny, tmp_path):
    done = kbundle.build(tiny, tmp_path / "a.kb", "-v", env={"KBUNDLE_CXX": "c++"}, cwd=tmp_path)
    first, *_, last = done.err.splitlines()
    assert done.code == 0 and re.fullmatch(rf"kbundle [\d.]+, {re.escape(os.path.realpath(kbundle.path))}, in {tmp_path}", first), first
    assert "\nKBUNDLE_CXX=c++\n" in done.err and "\nKBUNDLE_CACHE=" in done.err and "\nPATH=" in done.err and "KBUNDLE_CUDNN" not in done.err
    assert re.fullmatch(r"exit code 0 after \d+\.\d\d s", last)
    text, code = on_a_terminal(kbundle, "build", tiny, "-o", tmp_path / "b.kb", "--target", "host", "--cache", tmp_path / "other", "--verbose")
    assert code == 0 and len(re.findall(r"^\[\d/6\] tiny", text, re.M)) == 6 and "\x1b[K" not in text, text
    failed = kbundle("inspect", "/nowhere", "--verbose", "--json")
    assert failed.json["error"]["code"] == "NOT_FOUND" and failed.err.splitlines()[-1].startswith("exit code 1 after")
    assert kbundle("inspect", "/nowhere", "-q", "-v").code == 2


def bash_lines(kbundle, *words):
    script = 'eval "$("$0" completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kbundle; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script, kbundle.path, "kbundle", *words], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.splitlines()


def bash_says(kbundle, *words):
    return " ".join(bash_lines(kbundle, *words)).split()


def test_bash_completes_verbs_options_and_files(kbundle, shell_of, tmp_path, monkeypatch):
    shell_of("bash")
    assert bash_says(kbundle, "bu") == ["build"] and set(bash_says(kbundle, "")) > {"build", "tune", "doctor", "--help"}
    assert bash_says(kbundle, "tune", "--ch") == ["--check"] and "-o" in bash_says(kbundle, "build", "-")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.kb").touch()
    assert bash_says(kbundle, "inspect", "so") == ["some.kb"]
    (tmp_path / "two words.kb").touch()
    assert bash_lines(kbundle, "inspect", "two") == ["two words.kb"]
    assert bash_says(kbundle, "cache", "") == ["status", "prune", "verify"] and bash_says(kbundle, "completion", "z") == ["zsh"]
    assert bash_says(kbundle, "cache", "--cache", "so") == ["some.kb"] and bash_says(kbundle, "explain-error", "NOT_F") == ["NOT_FOUND"]
    for shell, words in (("zsh", "'*:word:(bash zsh fish)'"), ("fish", "-f -a 'bash zsh fish'")):
        assert words in kbundle("completion", shell).out


def test_zsh_finds_its_function_in_a_folder_of_fpath(kbundle, shell_of, tmp_path):
    # Autoloaded, the file is the function's body, and already the first call must complete.
    (tmp_path / "_kbundle").write_text(kbundle("completion", "zsh").out)
    script = "fpath=($0); autoload _kbundle; _describe() { print described; }; words=(kbundle ''); CURRENT=2; _kbundle; _kbundle"
    done = subprocess.run([shell_of("zsh"), "-fc", script, tmp_path], capture_output=True, text=True)
    assert done.stdout == "described\ndescribed\n" and not done.stderr, done.stderr


def test_zsh_and_fish_read_theirs(kbundle, shell_of):
    zsh = kbundle("completion", "zsh").out
    done = subprocess.run([shell_of("zsh"), "-fc", "compdef() { :; }; eval \"$0\" && whence -w _kbundle", zsh], capture_output=True, text=True)
    assert done.stdout == "_kbundle: function\n" and not done.stderr, done.stderr
    fish = subprocess.run([shell_of("fish"), "-c", f"{kbundle.path} completion fish | source; complete -C 'kbundle tune --ch'"],
                          capture_output=True, text=True)
    assert fish.stdout.startswith("--check\tMeasure nothing") and not fish.stderr, fish.stderr


def test_an_unknown_shell_is_a_usage_error(kbundle):
    done = kbundle("completion", "csh")
    assert done.code == 2 and "csh" in done.err and "fish" in done.err


def test_the_manual_is_a_page_without_a_warning(kbundle, shell_of):
    done = subprocess.run([shell_of("groff"), "-man", "-Tascii", "-ww"], input=kbundle("man").out, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "KBUNDLE_SHARED_CACHE" in done.stdout and "Exit codes" in done.stdout


def test_quiet_leaves_out_progress_and_nothing_else(kbundle, tiny, tmp_path):
    loud = kbundle.build(tiny, tmp_path / "a.kb")
    quiet = kbundle.build(tiny, tmp_path / "b.kb", "--quiet", "--cache", tmp_path / "other")
    assert "[" in loud.err and quiet.err == "" and quiet.code == 0 and "b.kb" in quiet.out
    tiny.write_text(tiny.read_text() + "\nunknown = 1\n")
    assert "unknown" in kbundle.build(tiny, tmp_path / "c.kb", "-q").err


def test_a_terminal_is_told_what_is_left_once_that_means_anything(kbundle, tiny, tmp_path):
    slow = tmp_path / "slow-c++"
    slow.write_text('#!/bin/sh\ncase "$*" in *-c*) sleep 1.5 ;; esac\nexec c++ "$@"\n')
    slow.chmod(0o755)
    text, code = on_a_terminal(kbundle, "build", tiny, "-o", tmp_path / "a.kb", "--target", "host", "-j", 1,
                               env={"KBUNDLE_CXX": str(slow)})
    assert code == 0 and re.search(r"\[\d/6, \d+/min, \d+ s left\] tiny", text) and "[1/6]" in text, text
