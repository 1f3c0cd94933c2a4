"""Says what cuDNN plans of attention on sm_90: asks build/release/planner/kb_planner, prints the table of builder/provider/cudnn/planner/README.md.

    python scripts/cudnn_table.py LIBCUDNN [LIBCUDNN ..]        a column pair for each library; needs no GPU
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLANNER = ROOT / "build/release/planner"
PROFILE = ROOT / "builder/provider/cudnn/profiles/h200.json"
SOFTCAP = [{"id": 1, "mode": "DIV", "x": {"score": True}, "y": {"scalar": "cap"}},
           {"id": 2, "mode": "TANH", "x": {"node": 1}},
           {"id": 3, "mode": "MUL", "x": {"node": 2}, "y": {"scalar": "cap"}}]
SOFTCAP_BACKWARD = [{"id": 4, "mode": "MUL", "x": {"node": 2}, "y": {"node": 2}},
                    {"id": 5, "mode": "MUL", "x": {"node": 4}, "y": {"value": -1}},
                    {"id": 6, "mode": "ADD", "x": {"node": 5}, "y": {"value": 1}},
                    {"id": 7, "mode": "MUL", "x": {"gradient": True}, "y": {"node": 6}}]
FP8_SCALES = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o", "amax_s", "amax_o")
# What is not as usual: sizes, dtype and order in memory; and features, by name.
LINES = [({"d": 64}, "top_left"), ({"d": 96}, "top_left"), ({"d": 128}, "top_left"), ({"d": 256}, "top_left"), ({"d": 192, "dv": 128}, "top_left"),
         ({"d": 100}, ""), ({"d": 264}, ""), ({"io": "f16"}, ""), ({"order": "bhsd"}, ""), ({"hk": 4}, "top_left"), ({"hk": 1}, ""), ({"sq": 1}, ""),
         ({"sq": 77, "sk": 77}, "top_left"), ({"sq": 1024}, "bottom_right"), ({"sq": 256}, "bottom_right"), ({"sq": 256}, "bottom_right window")]
LINES += [({}, features) for features in (
    "top_left window", "window", "lengths", "lengths top_left", "lengths bottom_right", "lengths bottom_right window",
    "bias", "bias top_left", "bias top_left window", "bias bottom_right", "bias lengths", "bias dbias", "bias dbias top_left", "bias dbias lengths",
    "dropout", "dropout top_left", "dropout bottom_right", "dropout bias lengths", "dropout bias dbias lengths",
    "ragged top_left", "ragged top_left window", "ragged bias", "ragged bias dbias", "ragged dropout",
    "deterministic", "deterministic top_left", "deterministic lengths", "deterministic bias dbias", "deterministic dropout", "deterministic ragged",
    "score_mod", "score_mod top_left", "score_mod top_left window", "score_mod bottom_right", "score_mod lengths", "score_mod ragged",
    "score_mod bias", "score_mod bias dbias", "score_mod dropout", "score_mod deterministic")]
LINES += [({"io": "e4m3"}, features) for features in (
    "", "top_left", "bottom_right", "top_left window", "lengths", "ragged", "dropout", "bias", "score_mod")] + [({"io": "e5m2"}, "")]

def tensor(uid, dims, order="bshd", **more):
    strides, run = [0] * 4, 1
    for axis in reversed(order):
        strides["bhsd".index(axis)] = run
        run *= dims["bhsd".index(axis)]
    return {"uid": uid, "dims": dims, "strides": strides, **more}


def request(node, features, b=2, h=8, hk=8, sq=512, sk=512, d=128, dv=0, order="bshd", io="bf16"):
    features, dv = features.split(), dv or d
    like = {"q": [b, h, sq, d], "k": [b, hk, sk, d], "v": [b, hk, sk, dv], "o": [b, h, sq, dv]}
    tensors = {name: tensor(1 + i, dims, order) for i, (name, dims) in enumerate(like.items())}
    tensors["stats"] = tensor(5, [b, h, sq, 1], "bhsd")
    if node == "sdpa_backward":
        tensors |= {"d" + name: tensor(7 + i, like[name], order) for i, name in enumerate("oqkv")}
    ask = {"node": node, "sm_version": 90, "io_dtype": io, "tensors": tensors, "scale": {"uid": 6}}
    ask |= {"causal": c for c in ("top_left", "bottom_right") if c in features} | ({"window": 63} if "window" in features else {})
    small = lambda uid, n=1: tensor(uid, [n, 1, 1, 1], "bhsd")
    if "bias" in features:
        tensors["bias"] = tensor(11, [1, h, sq, sk], "bhsd")
    if "dbias" in features:
        tensors["dbias"] = tensor(12, [1, h, sq, sk], "bhsd")
    if "lengths" in features or "ragged" in features:
        tensors |= {"q_lengths": small(13, b), "kv_lengths": small(14, b)}
    if "dropout" in features:
        tensors |= {"dropout_seed": small(15), "dropout_offset": small(16)}
        ask["dropout"] = 0.1
    if "ragged" in features:
        for i, name in enumerate(("q", "k", "v", "o", "stats")):
            for of in {name, "d" + name} & set(tensors):
                tensors[of]["ragged"] = name + "_ragged"
            tensors[name + "_ragged"] = small(20 + i, b + 1)
    if node == "sdpa_fp8":
        tensors |= {name: small(30 + i) for i, name in enumerate(FP8_SCALES)}
    if "score_mod" in features:
        ask |= {"scalars": {"cap": 40}, "score_mod": {"nodes": SOFTCAP, "result": {"node": 3}}}
        if node == "sdpa_backward":
            ask["score_mod_backward"] = {"nodes": SOFTCAP_BACKWARD, "result": {"node": 7}}
    return ask | ({"deterministic": True} if "deterministic" in features else {})


def plan(library, ask):
    ask = ask | {"number": 1, "device": json.loads(PROFILE.read_text())}
    (here, there), (answers, said) = os.pipe(), os.pipe()
    environment = {"LD_LIBRARY_PATH": f"{PLANNER}/null_driver:{pathlib.Path(library).parent}:{os.environ.get('LD_LIBRARY_PATH', '')}",
                   "KBUNDLE_PROFILE": str(PROFILE)}
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(f'exec "{PLANNER}/kb_planner" "{library}" 3<&{here} 4>&{said}\n')
        script.flush()
        child = subprocess.Popen(["/bin/bash", script.name], pass_fds=(here, said), env=environment, stdin=subprocess.DEVNULL)
        os.close(here), os.close(said)
        with open(there, "w") as requests, open(answers) as lines:
            requests.write(json.dumps(ask) + "\n")
            requests.flush()
            lines.readline()
            answer = lines.readline()
        child.wait()
    return json.loads(answer) if answer else {"error": f"take it): the planner died, status {child.returncode}"}


def cell(answer):
    if "error" in answer:
        return "no: " + answer["error"].split("take it): ")[-1].replace("|", "\\|")
    workspace = answer["plans"][0]["workspace"] / 1e6
    return f"yes, {workspace:.1f} MB" if workspace >= 0.05 else "yes"


def nodes_of(sizes, features):
    if sizes.get("io", "").startswith("e"):
        return ["sdpa_fp8"]
    return ["sdpa_backward"] if {"dbias", "deterministic"} & set(features.split()) else ["sdpa", "sdpa_backward"]


def main():
    libraries = sys.argv[1:]
    jobs = [(library, line, node, request(node, features, **sizes)) for line, (sizes, features) in enumerate(LINES)
            for library in libraries for node in nodes_of(sizes, features)]
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda job: plan(job[0], job[3]), jobs))
    cells = {(library, line, node == "sdpa_backward"): cell(answer) for (library, line, node, _), answer in zip(jobs, answers)}
    versions = {job[0]: answer["cudnn"] for job, answer in zip(jobs, answers) if "cudnn" in answer}
    print("| what | " + " | ".join(f"{versions[library]}, forward | backward" for library in libraries) + " |")
    print("|---" * (1 + 2 * len(libraries)) + "|")
    for line, (sizes, features) in enumerate(LINES):
        what = ", ".join([f"{name} {value}" for name, value in sizes.items()] + features.split()) or "nothing"
        print(f"| {what} | " + " | ".join(cells.get((library, line, backward), "") for library in libraries for backward in (False, True)) + " |")


main()
