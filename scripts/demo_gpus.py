"""What GPUs did with the bundle that the demo runs, out of tests/gpu/results: nothing here is measured or made up.

of_results() reads what scripts/gpu_check left of a GPU; of_h100() the page of an H100, for as long as it has no such file.
"""

import json
import pathlib
import re

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "tests/gpu/results"


def row_of(section, table, **wanted):
    """The table's first row whose columns begin with what is wanted, by column; {} where there is none."""
    for found in section.get("tables", []):
        if found["title"].startswith(table):
            for row in (dict(zip(found["head"], cells)) for cells in found["rows"]):
                if all(row.get(column.replace("_", " "), "").startswith(text) for column, text in wanted.items()):
                    return row
    return {}


def against(ours, theirs, whose):
    return f"{float(ours):.0f} us, {whose} {float(theirs):.0f}: {float(theirs) / float(ours):.2f}"


def of_results(path):
    """{row of the demo: (what ran, time, peer's, ratio)} as text, and the page's date."""
    results = json.loads(path.read_text())
    sections, told = results["sections"], {}
    for work, op in (("softmax", "scaled_forward"), ("causal softmax", "scaled_causal_forward")):
        found = row_of(sections.get("speed", {}), "Microseconds", op_and_shape=f"{op} bfloat16[4, 16, 2048, 2048]")
        if found:
            told[work] = "bf16[4,16,2048,2048] " + against(found["kbundle in jax.jit"], found["jax.jit formula"], "jax.jit")
    softcap = next((value for name, value in sections.get("attention_peers", {}).get("facts", {}).items()
                    if name.startswith("softcap, us")), None)
    if softcap:
        told["attention, softcap"] = "bf16[4,2048,16,128] " + against(softcap[2], softcap[0], "flex_attention")
    found = row_of(sections.get("matmul_jax", {}), "Microseconds", m_x_n_x_k="4096x4096x4096 bf16", problem="bias, epilogue=gelu")
    if found:
        told["dense, gelu"] = "bf16 4096 cubed " + against(found["kbundle in jax.jit"], found["jax.jit"], "jax.jit")
    found = row_of(sections.get("permutation", {}), "16384 tokens", op="permute")
    if found:
        told["permute"] = f"bf16[16384,4096], 8 of 64 {float(found['us']):.0f} us, {found['TB/s']} TB/s"
    return told, f"{results['device']}, driver {results['driver']}, {results['date']}"


def of_h100(page=RESULTS / "nvidia_h100.md"):
    """(what, figure) rows of that page's table, and its heading."""
    text = page.read_text()
    return re.findall(r"^\| (?!what)([^|-][^|]*) \| ([^|]+) \|$", text, re.M), text.splitlines()[0].lstrip("# ")
