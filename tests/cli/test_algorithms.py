"""Promise: algorithms asks cuBLASLt about every listed problem on a GPU, merges what it answers, and bundles are built of it anywhere."""

import json
import pathlib
import subprocess

import pytest

SUPPORT = pathlib.Path(__file__).parents[1] / "support"
MANIFEST = """
[family]
name = "dense"

[op.product]
types      = { T = ["bf16", "f32"] }
operands   = { a = "T[M, K]", b = "T[K, N]" }
results    = { d = "T[M, N]" }
coordinates = ["M", "N", "K"]
problems   = [ { T = "bf16", a = [64, 32], b = [32, 128] }, { T = "bf16", a = [64, 32], b = [32, 16] }, { T = "f32", a = [8, 8], b = [8, 8] } ]

[[op.product.variant]]
name       = "lt"
provider   = "cublaslt"
algorithms = "algorithms"
types      = { T = ["bf16"] }
when       = ["align(a, b, d) % 16 == 0"]
workspace  = { scratch = "u8[WORKSPACE]" }
steps      = [ { product = "d", a = "a", b = "b", m = "M", n = "N", k = "K", workspace = "scratch" } ]
"""


@pytest.fixture
def gpu(driver, tmp_path):
    """Environment in which driver and cuBLASLt are stand-ins."""
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcublasLt.so.13", "-o", tmp_path / "libcublasLt.so.13",
                    SUPPORT / "standin_cublaslt.c"], check=True)
    return {"LD_LIBRARY_PATH": f"{driver['LD_LIBRARY_PATH']}:{tmp_path}"}


@pytest.fixture
def dense(tmp_path):
    (tmp_path / "dense").mkdir()
    (tmp_path / "dense/dense.toml").write_text(MANIFEST)
    return tmp_path / "dense"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_answers_stand_beside_the_manifest_and_become_variants(kbundle, gpu, dense, tmp_path):
    done = kbundle("algorithms", dense, "--target", "sm_90a", "--near", "0", env=gpu)
    assert done.code == 0, done.err
    listed = lines(dense / "algorithms/stand-in.jsonl")
    assert len(listed) == 6 and {row["rank"] for row in listed} == {0, 1, 2}
    assert all(row["types"] == ["bf16"] and row["cublas"] == 130100 for row in listed)
    done = kbundle("build", dense, "-o", tmp_path / "dense.kb", "--target", "sm_90a,sm_80")
    assert done.code == 0, done.err
    whole = kbundle("inspect", tmp_path / "dense.kb", "--json").json
    variants = whole["ops"][0]["variants"]
    assert len(variants) == 6 and {v["target"] for v in variants} == {"sm_90a"}
    assert {blob["format"] for blob in whole["blobs"]} == {"algorithm"}


def test_what_was_listed_is_told_as_json(kbundle, gpu, dense):
    done = kbundle("algorithms", dense, "--target", "sm_90a", "--near", "0", "--json", env=gpu)
    wrote = str(dense / "algorithms/stand-in.jsonl")
    assert done.code == 0 and done.json["written"] == [wrote] and "text" not in done.json
    assert (done.json["ok"], done.json["algorithms"], done.json["near"]) == (True, 6, 0) and done.json["problems"] == 2
    done = kbundle("algorithms", dense, "--target", "sm_90a", "--near", "0", "-o", "-", "--json", env=gpu)
    assert [json.loads(line) for line in done.json["text"].splitlines()] == lines(dense / "algorithms/stand-in.jsonl")
    assert kbundle("algorithms", dense, "--target", "sm_90q", "--json", env=gpu).json["ok"] is False


def test_a_variant_that_asks_the_heuristic_stands_first_and_strict_processes_refuse_it(kbundle, gpu, dense, tmp_path):
    """The stand-in driver is of no device that conformance ran on, so strict leaves nothing."""
    manifest = dense / "dense.toml"
    manifest.write_text(MANIFEST.replace('algorithms = "algorithms"', 'algorithms = "algorithms"\nheuristic = true'))
    assert kbundle("algorithms", dense, "--target", "sm_90a", "--near", "0", env=gpu).code == 0
    done = kbundle("build", dense, "-o", tmp_path / "dense.kb", "--target", "sm_90a")
    assert done.code == 0, done.err
    first, *stored = kbundle("inspect", tmp_path / "dense.kb", "--json").json["ops"][0]["variants"]
    assert first["tunables"] | {"WORKSPACE": 0} == dict.fromkeys(first["tunables"], 0) and first["tunables"]["WORKSPACE"] == 32 << 20
    assert [kernel["blob"] for kernel in first["kernels"]] == [-1] and len(stored) == 6
    words = ["explain", tmp_path / "dense.kb", "dense.product", "--operand", "a=bf16[8,32]", "b=bf16[32,8]", "--target", "sm_90a"]
    found = kbundle(*words, "--json").json
    assert (found["chosen"], found["choice"]) == (first["id"], "heuristic")
    assert found["launch"]["steps"][0]["algorithm"] == "heuristic"
    assert "heuristic is asked when the plan is made" in kbundle(*words).out
    refused = {row["id"]: row["reason"] for row in kbundle(*words, "--strict", "--json").json["candidates"]}
    assert refused[first["id"]] == "strict: a heuristic would choose when a plan is made"


def test_products_of_a_models_file_are_listed_beside_the_manifests_own(kbundle, gpu, dense, tmp_path):
    model = tmp_path / "model.jsonl"
    model.write_text('{"op": "dense.product", "operands": {"a": "bf16[256,64]", "b": "bf16[64,48]"}}\n'
                     '{"op": "softmax.forward", "operands": {"x": "bf16[256,64]"}}\n')
    done = kbundle("algorithms", dense, "--target", "sm_90a", "--near", "0", "--problems", model, env=gpu)
    assert done.code == 0, done.err
    listed = {row["problem"]["operands"]["a"] for row in lines(dense / "algorithms/stand-in.jsonl")}
    assert listed == {"bf16[64,32]", "bf16[256,64]"} and "1 problem of other families" in done.err


def test_missing_asks_only_about_what_no_line_lists(kbundle, gpu, dense, tmp_path):
    model = tmp_path / "model.jsonl"
    model.write_text('{"op": "dense.product", "operands": {"a": "bf16[256,64]", "b": "bf16[64,48]"}}\n')
    words = ["algorithms", dense, "--target", "sm_90a", "--near", "0", "--missing"]
    done = kbundle(*words, "--problems", model, env=gpu)
    assert done.code == 0 and "3 algorithms for 1 problems" in done.err, done.err
    path = dense / "algorithms/stand-in.jsonl"
    assert {row["problem"]["operands"]["a"] for row in lines(path)} == {"bf16[256,64]"}
    before = path.read_bytes()
    done = kbundle(*words, "--problems", model, env=gpu)
    assert done.code == 0 and "0 algorithms" in done.err and path.read_bytes() == before
    assert kbundle(*words, env=gpu).code == 0
    assert len(lines(path)) == 9 and set(before.splitlines()) <= set(path.read_bytes().splitlines())


def test_faster_settings_near_those_are_listed_behind_them(kbundle, gpu, dense):
    """The stand-in is fastest with K whole, large clusters and custom options, of which the largest do not go together."""
    done = kbundle("algorithms", dense, "--target", "sm_90a", "--near", "3", env=gpu)
    assert done.code == 0, done.err
    assert "12 algorithms for 2 problems on Stand-in, 6 of them found near others" in done.err
    for columns in (128, 16):
        rows = [r for r in lines(dense / "algorithms/stand-in.jsonl") if r["problem"]["operands"]["b"] == f"bf16[32,{columns}]"]
        rows.sort(key=lambda r: r["rank"])
        assert [row["rank"] for row in rows] == list(range(6))
        found = [(r["config"]["SPLITK"], r["config"]["CLUSTER"], r["config"]["CUSTOM"]) for r in rows[3:]]
        assert found == [(1, 5, 2), (1, 5, 1), (1, 5, 0)]


def test_nothing_slower_than_what_the_heuristic_names_is_listed(kbundle, gpu, dense):
    done = kbundle("algorithms", dense, "--target", "sm_90a", "--near", "64", env=gpu)
    assert done.code == 0, done.err
    rows = lines(dense / "algorithms/stand-in.jsonl")
    assert rows and all(row["rank"] < 3 or row["config"]["CLUSTER"] > 2 and row["config"]["SPLITK"] == 1 for row in rows)


def test_a_gpu_with_too_little_memory_to_time_launches_gets_what_the_heuristic_names(kbundle, gpu, dense):
    done = kbundle("algorithms", dense, "--target", "sm_90a", env=gpu | {"STANDIN_MEMORY": "1000000"})
    assert done.code == 0 and "the heuristic's algorithms only: dense.product" in done.err and "device memory" in done.err, done.err
    assert {row["rank"] for row in lines(dense / "algorithms/stand-in.jsonl")} == {0, 1, 2}


def test_an_algorithm_that_is_listed_again_keeps_its_bytes(kbundle, gpu, dense):
    """The library fills in by chance what no setting says, and records name algorithms by all of their bytes."""
    assert kbundle("algorithms", dense, "--target", "sm_90a", env=gpu).code == 0
    file = dense / "algorithms/stand-in.jsonl"
    rows = lines(file)
    for row in rows:
        row["algorithm"] = "AAAA" + row["algorithm"][4:]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert kbundle("algorithms", dense, "--target", "sm_90a", env=gpu).code == 0
    assert {r["algorithm"] for r in lines(file)} == {r["algorithm"] for r in rows}


def test_asking_again_changes_nothing_and_less_workspace_gives_fewer(kbundle, gpu, dense):
    assert kbundle("algorithms", dense, "--target", "sm_90a", env=gpu).code == 0
    file = dense / "algorithms/stand-in.jsonl"
    before = file.read_bytes()
    assert kbundle("algorithms", dense, "--target", "sm_90a", env=gpu).code == 0
    assert file.read_bytes() == before
    assert kbundle("algorithms", dense, "--target", "sm_90a", "--workspace", "4096", "--near", "0", env=gpu).code == 0
    assert len(lines(file)) == 4 and all(row["workspace"] == 0 for row in lines(file))


def test_another_gpu_than_the_target_is_refused(kbundle, gpu, dense):
    done = kbundle("algorithms", dense, "--target", "sm_80", env=gpu)
    assert done.code != 0 and "give its own target" in done.err
    assert not (dense / "algorithms").exists()


def test_without_a_gpu_it_says_where_to_ask(kbundle, dense, tmp_path):
    done = kbundle("algorithms", dense, "--target", "sm_90a", env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.code == 3 and "GPU machine" in done.err
