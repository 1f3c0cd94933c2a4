"""Promise: who has FORMAT.md and bundle.fbs alone reads a bundle as kbundle does: every blob, every choice, every launch."""

import concurrent.futures
import json
import pathlib
import re
import struct
import subprocess

import pytest
from format import reader as second
from format.reader import choose
from format.reader.container import Damaged, File
from format.requests import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "build/kernels.kb"
TARGETS = "x86-64-v2,x86-64-v3,sm_90a"
HOSTS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
DEVICES = ["sm_90", "sm_90a", "sm_90", "x86-64-v2", "sm_90", "x86-64-v3", "sm_90", "x86-64-v4", "sm_89", "sm_100", "sm_90"]
CUDA, HOST = 1, 3
MODES = [(), ("deterministic",), ("batch_invariant",), ("deterministic", "batch_invariant")]


def device_of(name):
    host = re.fullmatch(r"x86-64-v(\d)", name)
    if host:
        return HOST, int(host[1]), 0
    digits = re.fullmatch(r"sm_(\d+)(\d)a?", name)
    return CUDA, int(digits[1]), int(digits[2])


def build(command, folder, name, library):
    path = folder / f"{name}.kb"
    subprocess.run([command, "build", ROOT / library, "-o", path, "--target", TARGETS], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def odd(command, tmp_path_factory):
    return build(command, tmp_path_factory.mktemp("format"), "odd", "tests/format/library")


@pytest.fixture(scope="module", params=["odd", "probe", "demo", "kernels"])
def path(request, command, tmp_path_factory):
    libraries = {"probe": "tests/python/library", "demo": "tests/downstream/library"}
    if request.param in libraries:
        return build(command, tmp_path_factory.mktemp("format"), request.param, libraries[request.param])
    if request.param == "kernels" and not KERNELS.exists():
        pytest.skip("no build/kernels.kb: kbundle build kernels -o build/kernels.kb")
    return KERNELS if request.param == "kernels" else request.getfixturevalue("odd")


@pytest.fixture(scope="module")
def reader(path):
    return second.Reader(path)


def ask(command, path, reader, request, device, alignment, sm_count, modes):
    words = [command, "explain", path, *request.arguments(reader), "--target", device, "--align", str(alignment), "--json"]
    words += ["--sm-count", str(sm_count)] if device.startswith("sm_") else []
    words += [f"--{mode.replace('_', '-')}" for mode in modes]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stderr
    told = json.loads(ran.stdout)
    return None if isinstance(told.get("error"), dict) else told, ran.stderr


def answer(reader, request, device, alignment, sm_count, modes):
    """What the second reader says; None where the op refuses the request."""
    try:
        asked = reader.problem(request.op, request.operands, request.attributes)
    except second.Refused:
        return None
    return reader.explain(asked, device_of(device), alignment, sm_count if device.startswith("sm_") else 1, modes)


def differences(told, found):
    if told is None or found is None:
        return [] if told is found else [f"refused by {'kbundle' if told is None else 'the second reader'} alone"]
    return [key for key in found if told[key] != found[key]]


def test_both_choose_and_launch_alike(command, path, reader):
    count = 240 if path == KERNELS else 80
    devices = DEVICES if any(target.kind == CUDA for target in reader.index.targets) else HOSTS
    promised = any(template.deterministic is not None for template in reader.index.templates)
    asked = []
    for number, request in enumerate(requests(reader, count, seed=20261122)):
        device = devices[number % len(devices)]
        asked.append((request, device, (16, 16, 16, 4, 1)[number % 5], (132, 78)[number % 3 == 0], MODES[number % 7 % 4 if promised else 0]))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda question: ask(command, path, reader, *question), asked))
    wrong, choices = [], {}
    for question, (explained, error) in zip(asked, told):
        found = answer(reader, *question)
        different = differences(explained, found)
        if different:
            wrong.append((different, question, error, explained, found))
        choices[found and found["choice"]] = choices.get(found and found["choice"], 0) + 1
    assert not wrong, f"{len(wrong)} of {count} differ, the first: {wrong[0]}"
    # It was worth asking: most requests were taken, and every way to choose was seen.
    assert choices.get(None, 0) < 0.75 * count and choices["manifest order"] > 0
    assert path != KERNELS or (choices["exact"] > 0 and choices["nearest"] > 0)


def test_every_blob_has_its_hashes(reader):
    blobs = reader.index.blobs
    step = max(len(blobs) // 60, 1)
    assert sum(len(reader.file.blob(number)) for number in range(0, len(blobs), step)) > 0


def test_a_changed_byte_of_header_or_index_is_seen(odd, tmp_path):
    data, fbs = odd.read_bytes(), (ROOT / "schemas/bundle.fbs").read_text()
    index_size, pages = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<Q", data, 96)[0]
    assert 0 < pages < index_size
    for place in (0, 9, 30, 60, 70, 100, 128, 1000, 128 + index_size - pages - 1, 128 + index_size - pages, 128 + index_size - 1):
        changed = tmp_path / "changed.kb"
        changed.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1:])
        with pytest.raises(Damaged):
            File(changed, fbs)


WORKED = {"softmax.scaled_causal_forward": ([("bf16", [4, 16, 2048, 2048])], {"scale": 0.125}),
          "permutation.sort_chunks_by_map": ([("bf16", [131072, 4096]), ("i32", [131072]), None], {})}


def test_the_page_works_out_match_hashes(reader, path):
    page = (ROOT / "schemas/FORMAT.md").read_text()
    block = re.search(r"<!-- matches -->\n```\n(.*?)```", page, re.S)[1]
    examples = re.findall(r"([\w.]+)\(.*\)\n(\[[\d, ]+\])\n([0-9a-f]{16})\n", block)
    assert [op for op, _, _ in examples] == list(WORKED)
    for op, numbers, written in examples:
        assert f"{choose.match_hash(json.loads(numbers)):016x}" == written
        if path == KERNELS:
            asked = reader.problem(op, *WORKED[op])
            assert choose.match_numbers(asked) == json.loads(numbers)
            assert any(key[2] == int(written, 16) for key in reader.tuned), "no tuned row has it"
