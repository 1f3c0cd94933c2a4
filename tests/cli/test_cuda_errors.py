"""Promise: what is wrong with CUDA code is told once, in the author's own file or at the manifest's line, and within a time limit."""

import os
import re
import subprocess
import time

import pytest
from cli.tiny import CUDA_MANIFEST, TWICE, write_cuda



@pytest.fixture
def cuda(tmp_path):
    return write_cuda(tmp_path / "gpu")


def build(kbundle, manifest, *arguments, **more):
    return kbundle("build", manifest, "-o", manifest.parent / "gpu.kb", "--target", "sm_90a", *arguments, **more)


def test_a_typing_error_is_told_once_in_the_authors_file(kbundle, cuda):
    (cuda.parent / "twice.cu").write_text(TWICE.replace("2 * x[i]", "2 * q[i]"))
    done = build(kbundle, cuda, "--keep-going", "-j", "1")
    assert done.code == 1
    assert f"{cuda.parent}/twice.cu(4): error: identifier \"q\" is undefined" in done.err, done.err
    assert "kb.cu" not in done.err and done.err.count('"q" is undefined') == 1
    assert "the same in 5 more of its compilations" in done.err


def test_a_kernel_that_the_source_lacks_is_told_with_those_it_has(kbundle, cuda):
    cuda.write_text(CUDA_MANIFEST.replace("twice<{T}", "thrice<{T}"))
    done = build(kbundle, cuda, "-j", "1")
    line = CUDA_MANIFEST[:CUDA_MANIFEST.index("twice<{T}")].count("\n") + 1
    assert done.code == 1 and re.search(rf"gpu\.toml:{line}:\d+: error: .*'thrice<", done.err), done.err
    assert "it has: twice" in done.err and "^" in done.err
    [command] = re.findall(r"^to see it again: kbundle (.*)$", done.err, re.M)
    again = subprocess.run(f"{kbundle.path} {command}", shell=True, capture_output=True, text=True, timeout=120,
                           env=kbundle.environment)
    assert again.returncode == 1 and "'thrice<" in again.stderr


@pytest.mark.parametrize("before, after, words", [
    ('["y", "x", "i64(N)"]', '["x", "y", "i64(N)"]',
     ['"x" is an operand', "the kernel takes (float*, float const*, long long)", "`args` passes (const f32* x, f32* y, i64 i64(N))"]),
    ('"i64(N)"', '"f64(N)"', ["is long long", '"f64(N)" passes f64']),
])
def test_an_argument_of_another_type_is_told_with_both_signatures_once(kbundle, cuda, before, after, words):
    cuda.write_text(CUDA_MANIFEST.replace(before, after))
    done = build(kbundle, cuda)
    assert done.code == 1 and re.search(r"gpu\.toml:\d+:\d+: error: parameter \d of kernel 'twice<", done.err), done.err
    assert all(word in done.err for word in words), done.err
    assert re.search(r"note: in variant gpu\.twice/elementwise\[T=f32,THREADS=128\]@sm_90a and \d+ more", done.err), done.err


def test_a_compilation_without_end_is_ended_and_leaves_nothing_behind(kbundle, cuda):
    (cuda.parent / "twice.cu").write_text(
        "constexpr int Spin(int n) { int s = 0; for (int i = 0; i < n; ++i) s += i % 7; return s; }\n"
        + "".join(f"constexpr int k{i} = Spin({2_000_000_000 - i});\n" for i in range(40)) + TWICE)
    cuda.write_text(CUDA_MANIFEST.replace("[128, 256, 512]", "[128]").replace('portable = true\n', ''))
    begin = time.monotonic()
    done = build(kbundle, cuda, "-j", "1", cwd=cuda.parent, env={"KBUNDLE_COMPILE_TIMEOUT": "1"})
    assert time.monotonic() - begin < 40
    assert done.code == 1 and "KBUNDLE_COMPILE_TIMEOUT" in done.err, done.err
    left = subprocess.run(["pgrep", "-f", "nvrtc-worker"], capture_output=True, text=True).stdout.split()
    assert not [p for p in left if os.path.exists(f"/proc/{p}/cwd") and os.readlink(f"/proc/{p}/cwd") == str(cuda.parent)]


@pytest.mark.parametrize("before, after, words", [
    ('block = ["THREADS"]', 'block = ["THREADS * 16"]', ["'THREADS * 16' is a block of more than 1024 threads"]),
    ('grid = ["ceil_div(N, THREADS)"]', 'grid = ["1", "N * 131"]', ["131000 blocks in a grid's y, allowed are 65535", "x=[1000]"]),
    ('block = ["THREADS"]', 'block = ["THREADS"], shared = "300000"', ["300000 bytes of shared memory", "232448 on sm_90a"]),
    ('block = ["THREADS"]', 'block = ["THREADS"], cluster = ["32"]', ["a cluster of more than 16 blocks"]),
])
def test_a_launch_that_no_gpu_takes_is_refused_when_built(kbundle, cuda, before, after, words):
    cuda.write_text(CUDA_MANIFEST.replace(before, after))
    done = build(kbundle, cuda)
    assert done.code == 1 and re.search(r"gpu\.toml:\d+:\d+: error: '", done.err), done.err
    assert all(word in done.err for word in words), done.err


# ---- keys ----

def test_a_header_that_a_toolkits_header_includes_is_part_of_what_is_compared(kbundle, cuda, tmp_path):
    toolkit = tmp_path / "toolkit"
    nvrtc = next(line.split()[-1] for line in kbundle("doctor").out.splitlines() if "libnvrtc.so" in line)
    root = os.path.dirname(os.path.dirname(nvrtc))
    (toolkit / "include").mkdir(parents=True)
    for folder in ("lib", "lib64", "bin", "nvvm"):
        if os.path.isdir(f"{root}/{folder}"):
            (toolkit / folder).symlink_to(f"{root}/{folder}")
    for name in os.listdir(f"{root}/include"):
        if name != "outer.h":
            (toolkit / "include" / name).symlink_to(f"{root}/include/{name}")
    (toolkit / "include/outer.h").write_text("#include <inner.h>\n")
    inner = toolkit / "include/inner.h"
    inner.write_text("#define FACTOR 2\n")
    (cuda.parent / "twice.cu").write_text("#include <outer.h>\n" + TWICE.replace("2 *", "FACTOR *"))
    env = {"KBUNDLE_CUDA_ROOT": str(toolkit)}
    first = build(kbundle, cuda, "--json", env=env)
    assert first.code == 0 and first.json["compiled"] > 0, first.err
    assert build(kbundle, cuda, "--json", env=env).json["compiled"] == 0
    before = (cuda.parent / "gpu.kb").read_bytes()
    inner.write_text("#define FACTOR 3\n")
    assert build(kbundle, cuda, "--json", env=env).json["compiled"] == first.json["compiled"]
    assert (cuda.parent / "gpu.kb").read_bytes() != before


@pytest.mark.parametrize("line", ['#include "/etc/hostname"', "#define NAME <cuda_bf16.h>\n#include NAME",
                                  '/* c */ #include "/etc/hostname"', '%:include "/etc/hostname"',
                                  '#\\\ninclude "/etc/hostname"', '#inc\\\nlude "/etc/hostname"'])
def test_an_include_that_the_key_cannot_follow_is_refused(kbundle, cuda, line):
    (cuda.parent / "twice.cu").write_text(line + "\n" + TWICE)
    done = build(kbundle, cuda)
    assert done.code == 1 and re.search(r"twice\.cu:\d: ` *#include ", done.err), done.err


@pytest.mark.parametrize("flag", ["--include-path=/usr/include", "--pre-include=/etc/hostname", "-include=x.h", "-arch=sm_80",
                                  "--use-pch=x.pch", "/etc/hostname"])
def test_a_flag_whose_files_the_key_cannot_see_is_refused(kbundle, cuda, flag):
    cuda.write_text(CUDA_MANIFEST.replace("portable = true", f'portable = true\nflags    = ["{flag}"]'))
    done = build(kbundle, cuda)
    assert done.code == 1 and re.search(r"gpu\.toml:\d+:\d+: error: flag ", done.err), done.err
