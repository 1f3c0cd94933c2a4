"""Promise: what `cmake --install` puts into a folder is enough to build a bundle, and C and C++ programs that use it, far from
this tree; the folder may be moved; a bundle is built again when a file that it is made of has changed, and only then."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("KB_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build/release"))
PROJECT = pathlib.Path(__file__).resolve().parent / "project"
SYSTEM = {"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"}


def run(*words, code=0, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installed kbundle, moved after it was installed."""
    folder = tmp_path_factory.mktemp("install")
    run("cmake", "--install", BUILD, "--prefix", folder / "first")
    return (folder / "first").rename(folder / "opt")


@pytest.fixture(scope="module")
def project(prefix, tmp_path_factory):
    """The project outside the tree, built against it."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copytree(PROJECT, folder / "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBUNDLE_CACHE", str(folder / "cache"))
        run("cmake", "-S", folder / "source", "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", folder / "build", "-j2")
        yield folder


def needed(path):
    return set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", path)))


def test_the_library_has_a_version_and_needs_the_system_alone(prefix):
    library = prefix / "lib/libkbundle.so"
    assert os.readlink(library) == "libkbundle.so.1"
    assert "SONAME" in run("readelf", "-d", library) and needed(library) <= SYSTEM
    symbols = run("nm", "-D", "--defined-only", library).split()[2::3]
    assert symbols and all(symbol.startswith("kb_") for symbol in symbols)


def test_programs_in_c_and_cpp_open_plan_and_launch(prefix, project):
    bundle = project / "build/twice.kb"
    for program in ("use_c", "use_c_from_cpp", "use_cpp"):
        assert run(project / "build" / program, bundle) == "twice.forward/loop[T=f32]@x86-64-v2 14\n"
    assert run(project / "build/use_dlopen", prefix / "lib/libkbundle.so.1", bundle) == "verified\n"
    assert needed(project / "build/use_c") - SYSTEM == {"libkbundle.so.1"}
    assert needed(project / "build/use_cpp") <= SYSTEM


def test_a_program_that_captures_a_graph_needs_no_toolkit_and_says_what_it_lacks(project):
    program = project / "build/use_graph"
    assert needed(program) - SYSTEM == {"libkbundle.so.1"}
    done = subprocess.run([program, project / "build/twice.kb"], capture_output=True, text=True, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
    assert done.returncode == 1 and done.stdout == ""
    assert "run this on a machine where nvidia-smi names a GPU" in done.stderr or "is there a GPU" in done.stderr, done.stderr
    assert "use_graph BUNDLE" in subprocess.run([program], capture_output=True, text=True).stderr


def test_the_command_finds_what_belongs_to_it(prefix, project):
    assert '"name":"outside"' in run(prefix / "bin/kbundle", "inspect", "--json", project / "build/twice.kb").replace(" ", "")
    strings = run("strings", "-a", prefix / "bin/kbundle")
    assert (prefix / "libexec/kbundle/kb_planner").exists() == (BUILD / "planner/kb_planner").exists()
    assert "host_kernel.h" in strings and (prefix / "share/kbundle/include/kbundle/host_kernel.h").exists()


def test_the_manual_and_the_completions_lie_where_they_are_looked_for_and_are_the_commands(prefix):
    command = prefix / "bin/kbundle"
    for where, words in (("man/man1/kbundle.1", ["man"]), ("bash-completion/completions/kbundle", ["completion", "bash"]),
                         ("zsh/site-functions/_kbundle", ["completion", "zsh"]),
                         ("fish/vendor_completions.d/kbundle.fish", ["completion", "fish"])):
        assert (prefix / "share" / where).read_text() == run(command, *words), where
    script = 'source "$0/share/bash-completion/completions/kbundle"; complete -p kbundle'
    assert run("bash", "-c", script, prefix).split()[-3:] == ["-F", "_kbundle", "kbundle"]


def built_again(project):
    """Whether `cmake --build` asks the command for the bundle."""
    return "Bundle twice_bundle" in run("cmake", "--build", project / "build", "--target", "twice_bundle")


def test_a_bundle_is_built_again_when_what_it_is_made_of_has_changed(project):
    library, bundle = project / "source/twice", project / "build/twice.kb"
    assert not built_again(project)
    before = bundle.read_bytes()

    (library / "factor.h").write_text("#define FACTOR 3.0f\n")
    assert built_again(project) and bundle.read_bytes() != before, "a header that only the source names"
    assert not built_again(project)

    for name in ("README.md", "reference.py", "unused.h"):
        (library / name).write_text("# nothing that a build reads\n")
    (project / "source/use_c.c").touch()
    assert not built_again(project)

    (library / "more.toml").write_text((library / "twice.toml").read_text().replace('"twice"\nreference', '"thrice"\nreference'))
    assert built_again(project), "a manifest that joined"
    (library / "more.toml").unlink()
    (library / "factor.h").write_text("#define FACTOR 2.0f\n")
    assert built_again(project) and bundle.read_bytes() == before


def test_the_bundle_is_installed_as_a_component(project):
    run("cmake", "--install", project / "build", "--prefix", project / "there", "--component", "kernels")
    assert [path.name for path in (project / "there").rglob("*") if path.is_file()] == ["twice.kb"]


def test_pkg_config_says_how_to_compile_and_link(prefix, project):
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config: not on this machine")
    flags = run("pkg-config", "--cflags", "--libs", "kbundle", env=dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig")))
    program = project / "use_c_by_pkg_config"
    run("cc", project / "source/use_c.c", "-o", program, *flags.split(), f"-Wl,-rpath,{prefix}/lib")
    assert run(program, project / "build/twice.kb").endswith(" 14\n")


@pytest.mark.parametrize("call, says", [
    ("kbundle_add_bundle(b)", "PATHS is missing"), ("kbundle_add_bundle(b PATHS nowhere)", "which is not there"),
    ("kbundle_add_bundle(b SOURCES x)", "no argument is called 'SOURCES'"),
])
def test_a_wrong_call_says_what_is_wrong(prefix, tmp_path, call, says):
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.25)\nproject(wrong C CXX)\nfind_package(kbundle REQUIRED)\n{call}\n")
    done = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"],
                          capture_output=True, text=True)
    assert done.returncode and says in done.stderr


def test_a_list_of_files_replaces_nothing_of_the_authors(command, tmp_path):
    shutil.copytree(PROJECT / "twice", tmp_path / "twice")
    source = tmp_path / "twice/factor.h"
    done = subprocess.run([command, "build", "twice", "-o", "t.kb", "--target", "x86-64-v2", "--depfile", source],
                          cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode and str(source) in done.stderr and "--force" in done.stderr and "FACTOR" in source.read_text()
