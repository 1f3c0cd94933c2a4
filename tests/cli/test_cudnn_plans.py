"""Promise: problems of a variant that cuDNN plans get their plans without a GPU, the same bytes each time, and what cuDNN
refuses is left out with its reason."""

import pathlib
import sys

import pytest
from cli.command import Command

ROOT = pathlib.Path(__file__).resolve().parents[2]

MANIFEST = """\
[family]
name      = "att"
reference = "reference.py"

[op.mix]
types      = { T = ["f16", "bf16"] }
operands   = { q = "T[B, H, S, D]", k = "T[B, H, S, D]", v = "T[B, H, S, D]" }
results    = { o = "T[B, H, S, D]" }
attributes = { scale = { type = "float" }, causal = { type = "bool", default = false } }
tolerance  = 1e-2
problems   = [PROBLEMS]

[[op.mix.variant]]
name     = "planned"
provider = "cudnn"
targets  = ["sm_90a"]
profile  = "h200"
cudnn    = [VERSIONS]
let      = { SD = "S * D" }
steps    = [{
  graph   = "sdpa",
  tensors = {
    q = { tensor = "q", dims = ["B", "H", "S", "D"], strides = ["H * SD", "SD", "D", "1"] },
    k = { tensor = "k", dims = ["B", "H", "S", "D"], strides = ["H * SD", "SD", "D", "1"] },
    v = { tensor = "v", dims = ["B", "H", "S", "D"], strides = ["H * SD", "SD", "D", "1"] },
    o = { tensor = "o", dims = ["B", "H", "S", "D"], strides = ["H * SD", "SD", "D", "1"] },
  },
  scalars = { scale = "f32(scale)" },
}]
"""

HALF = '{ T = "f16", q = [1, 2, 128, 64], scale = 0.125 }'
OTHER = '{ T = "bf16", q = [1, 2, 128, 64], scale = 0.125 }'
REFUSED = '{ T = "f16", q = [1, 2, 128, 4], scale = 0.5 }'
NEW = '{"op": "att.mix", "operands": {"q": "f16[3,2,128,64]", "k": "f16[3,2,128,64]", "v": "f16[3,2,128,64]"}, ' \
      '"attributes": {"scale": 0.125}}\n'
VARIANT = "att.mix/planned[T=f16,B=1,H=2,S=128,D=64,causal=0,PLAN=0,CUDNN=91900]@sm_90a"


def write(folder, *problems, versions='"9.19.0"'):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "att.toml").write_text(MANIFEST.replace("PROBLEMS", ", ".join(problems)).replace("VERSIONS", versions))
    (folder / "reference.py").write_text("def mix(q, k, v, *, scale, causal=False):\n    return q\n")
    return folder / "att.toml"


def build(kbundle, manifest, output, *more, **how):
    return kbundle("build", manifest, "-o", output, "--target", "sm_90a", *more, timeout=300, **how)


@pytest.fixture(scope="module")
def planned(command, tmp_path_factory):
    """A command whose cache holds the plans of HALF and OTHER, and a bundle of them."""
    folder = tmp_path_factory.mktemp("att")
    run = Command(command, folder / "cache", folder)
    done = build(run, write(folder / "att", HALF, OTHER), folder / "att.kb", "--json")
    if done.code != 0 and ("cuDNN's plans need" in done.err or "it is not here" in done.err):
        pytest.skip(done.err.strip())
    assert done.code == 0, done.err
    assert (done.json["variants"], done.json["compiled"]) == (2, 2)
    return run, folder / "att.kb"


def test_a_second_build_plans_nothing_and_writes_the_same_bytes(planned, tmp_path):
    kbundle, bundle = planned
    done = build(kbundle, write(tmp_path / "elsewhere", HALF, OTHER), tmp_path / "att.kb", "--json", "--provider", "cudnn")
    assert done.code == 0, done.err
    assert done.json["compiled"] == 0 and done.json["reused"] == 2
    assert (tmp_path / "att.kb").read_bytes() == bundle.read_bytes()


def test_plans_of_another_folder_and_cache_are_the_same_bytes(command, planned, tmp_path):
    other = Command(command, tmp_path / "a-cache-whose-name-is-longer", tmp_path)
    done = build(other, write(tmp_path / "elsewhere", HALF, OTHER), tmp_path / "att.kb", "--json")
    assert done.code == 0, done.err
    assert done.json["compiled"] == 2
    assert (tmp_path / "att.kb").read_bytes() == planned[1].read_bytes()


def test_a_problem_that_cudnn_refuses_is_left_out_with_its_reason(planned, tmp_path):
    kbundle, _ = planned
    done = build(kbundle, write(tmp_path / "att", HALF, REFUSED), tmp_path / "att.kb")
    assert done.code == 0, done.err
    told = [line for line in done.out.splitlines() if "leave out" in line]
    assert len(told) == 1 and "D=4" in told[0] and "has no plan" in told[0] and "multiple of 8" in told[0], done.out
    ids = [v["id"] for v in kbundle("inspect", tmp_path / "att.kb", "--json").json["ops"][0]["variants"]]
    assert ids == [VARIANT]


def test_a_problem_has_more_plans_where_the_manifest_wants_them(planned, tmp_path):
    kbundle, _ = planned
    manifest = write(tmp_path / "att", HALF)
    manifest.write_text(manifest.read_text().replace("cudnn    =", "plans    = 3\ncudnn    ="))
    done = build(kbundle, manifest, tmp_path / "att.kb")
    assert done.code == 0, done.err
    ids = [v["id"] for v in kbundle("inspect", tmp_path / "att.kb", "--json").json["ops"][0]["variants"]]
    assert ids[:2] == [VARIANT, VARIANT.replace("PLAN=0", "PLAN=1")]
    assert len(ids) == 3 or f"cuDNN's last plan for it is PLAN={len(ids) - 1}" in done.out
    plans = set()
    for one in ids:
        assert kbundle("extract", tmp_path / "att.kb", one, "-o", tmp_path / "plan", "--force").code == 0
        plans.add((tmp_path / "plan").read_bytes())
    assert len(plans) == len(ids)
    manifest.write_text(manifest.read_text().replace("plans    = 3", "max_workspace = 0"))
    done = build(kbundle, manifest, tmp_path / "att.kb")
    assert "over max_workspace, 0" in done.out


def test_tuning_counts_a_refused_plan_as_failed_and_goes_on_with_the_others(planned, driver, tmp_path):
    kbundle, _ = planned
    manifest = write(tmp_path / "att", HALF, REFUSED)
    manifest.write_text(manifest.read_text().replace("cudnn    =", "plans    = 2\nmax_workspace = 0\ncudnn    =", 1))
    done = kbundle("tune", manifest, "--target", "sm_90a", "--json", timeout=300,
                   env=driver | {"KBUNDLE_PYTHON": sys.executable})
    assert done.code == 1, done.err  # no problem has a right candidate
    why = {f["variant"]: (f["kind"], f["message"]) for f in done.json["failures"]}
    kind, message = why[VARIANT]
    assert kind == "compile" and "over max_workspace, 0" in message
    kind, message = why[VARIANT.replace("D=64", "D=4")]
    assert kind == "compile" and "multiple of 8" in message
    kind, message = why[VARIANT.replace("PLAN=0", "PLAN=1")]  # takes no workspace, so it went as far as the stand-in
    assert kind == "refused" and "was made for a device with" in message


@pytest.mark.parametrize("written, instead, line, words", [
    ('    o = { tensor', '    oh = { tensor', 20, 'tensor "o" is missing'),
    ('scalars = {', 'options = { causl = "causal" }, scalars = {', 28, '"causl" is no key here; there are: '),
    ('    k = { tensor = "k"', '    bais = { tensor = "q", dims = ["B"], strides = ["1"] },\n    k = { tensor = "k"', 24,
     '"bais" is no tensor here; there are: bias, '),
    ('graph   = "sdpa"', 'graph   = "sdpb"', 20, 'there is no node "sdpb"; there are: sdpa, sdpa_backward, sdpa_fp8'),
    ('profile  = "h200"', 'profile  = "other.json"', 17,
     "profile 'other.json' is of a GPU of compute capability 10.0, on which sm_90a does not run")])
def test_a_mistake_in_the_manifest_is_an_error_at_its_line(planned, tmp_path, written, instead, line, words):
    kbundle, _ = planned
    manifest = write(tmp_path / "att", HALF)
    text = manifest.read_text()
    assert written in text
    manifest.write_text(text.replace(written, instead, 1))
    profile = (ROOT / "builder/provider/cudnn/profiles/h200.json").read_text()
    (tmp_path / "att/other.json").write_text(profile.replace('"deviceVer": 900', '"deviceVer": 1000'))
    done = build(kbundle, manifest, tmp_path / "att.kb")
    assert done.code != 0 and not (tmp_path / "att.kb").exists()
    assert f"att.toml:{line}:" in done.err and words in done.err, done.err


def test_a_recorded_problem_gets_a_plan_of_its_own(planned, tmp_path):
    kbundle, _ = planned
    (tmp_path / "problems.jsonl").write_text(NEW)
    manifest = write(tmp_path / "att", HALF, OTHER)
    done = build(kbundle, manifest, tmp_path / "att.kb", "--problems", tmp_path / "problems.jsonl", "--json")
    assert done.code == 0, done.err
    assert (done.json["variants"], done.json["compiled"], done.json["reused"]) == (3, 1, 2)
    arguments = [f"--operand={name}=f16[3,2,128,64]" for name in "qkv"] + ["--attr", "scale=2", "--target", "sm_90a"]
    done = kbundle("explain", tmp_path / "att.kb", "att.mix", *arguments)
    assert done.code == 0 and VARIANT.replace("B=1", "B=3") in done.out, done.out + done.err


def test_a_version_that_is_not_installed_says_which_are_and_what_to_do(planned, tmp_path):
    kbundle, _ = planned
    done = build(kbundle, write(tmp_path / "att", HALF, versions='"9.1.7"'), tmp_path / "att.kb")
    assert done.code == 3 and not (tmp_path / "att.kb").exists()
    for words in ("planning with cuDNN 9.1.7: it is not here", "found: 9.", "Install nvidia-cudnn-cu13==9.1.7.*", "KBUNDLE_CUDNN"):
        assert words in done.err


def test_extract_writes_the_plan(planned, tmp_path):
    kbundle, bundle = planned
    done = kbundle("extract", bundle, VARIANT, "-o", tmp_path / "plan")
    assert done.code == 0 and "execution plan of cuDNN" in done.out, done.err
    data = (tmp_path / "plan").read_bytes()
    assert data[8:].startswith(b"kbundle execution plan") and b'"multiProcessorCount":132' in data


def test_explain_names_what_another_problem_has_and_the_plan_has_not(planned):
    kbundle, bundle = planned
    arguments = [f"--operand={name}=f16[3,2,128,64]" for name in "qkv"] + ["--attr", "scale=2", "--target", "sm_90a"]
    done = kbundle("explain", bundle, "att.mix", *arguments)
    assert done.code == 1
    assert "its execution plan is for another problem: B is 3, the plan's 1" in done.out


def test_a_plan_is_not_for_addresses_that_are_less_aligned_than_it_takes_them_for(planned):
    kbundle, bundle = planned
    arguments = [f"--operand={name}=f16[1,2,128,64]" for name in "qkv"] + ["--attr", "scale=2", "--target", "sm_90a"]
    assert kbundle("explain", bundle, "att.mix", *arguments).code == 0
    done = kbundle("explain", bundle, "att.mix", *arguments, "--align", "8")
    assert done.code == 1 and "align(q, k, v, o) % 16 == 0" in done.out
