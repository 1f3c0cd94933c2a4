"""Promise: README.md's Python runs as it stands, without a GPU, its blocks in the page's order in one process, and the calls of docs/python.md
one by one: it names every function that there is. AUTHORING.md's function of CuTe DSL is one that tests/cute builds."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pages  # noqa: E402
from classes import block_class_of  # noqa: E402

ROOT = pages.ROOT
IMPORTS = "import kbundle, kbundle.jax as kbj\n"
# What the page leaves to the reader: arrays ..
ARRAYS = """
import jax, jax.numpy as jnp
normal = lambda *shape: jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)
x, gamma, scale = normal(64, 64), normal(64), 0.125
logits, embedding, labels = normal(64, 100), normal(100, 64), jnp.arange(64)
w, bias = normal(64, 128), normal(128)
w1, w2, dy = normal(64, 256), normal(128, 64), normal(64, 64)
q, k, v = (normal(2, 32, 4, 16) for _ in range(3))
qkv = normal(2, 32, 3, 4, 16)
pages, lengths, indices = normal(4, 10, 16, 16), jnp.array([30, 9]), jnp.array([[7, 2], [0, 0]])
tokens, num_out_tokens = normal(8, 64), 16
routing_map = jnp.arange(4) < jnp.full((8, 1), 2)
"""
# .. and what the list speaks of in general.
NAMES = """
op, path = "softmax.scaled_forward", "kernels.kb"
paths = [path]
variant = kbundle.open("kernels.kb").explain(op, x, scale=0.5)["chosen"]
operands, attributes = (x,), {"scale": 0.5}
router_logits, w_in, w_out = normal(len(tokens), 4), normal(4, tokens.shape[-1], 32), normal(4, 16, tokens.shape[-1])
lhs, rhs, group_sizes, bias_of_groups = normal(12, 64), normal(3, 64, 32), jnp.array([5, 0, 7]), normal(3, 32)
rows, offsets, bias_of_norm = normal(32, 4, 16), jnp.array([0, 20, 32], jnp.int32), normal(64)
step, args = lambda x: kbj.scaled_softmax(x, 0.5), (x,)
f = jax.jit(step)
export = lambda f, **named: jax.export.export(f, **named)(x)
"""
FILLED = {'"family.op"': '"softmax.scaled_forward"'}


def of(kind, page="README.md"):
    return [block for block in pages.blocks(page) if block_class_of(block) == kind]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    (folder / "build").mkdir()
    for name in ("build/kernels.kb", "kernels.kb"):
        (folder / name).symlink_to(ROOT / "build/kernels.kb")
    env = dict(os.environ, JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="",
               PYTHONPATH=os.pathsep.join([str(ROOT / "ffi/python"), os.environ.get("PYTHONPATH", "")]))

    def run(text):
        done = subprocess.run([sys.executable, "-c", text], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        return done.stdout

    return run


def test_the_blocks_run_in_the_order_of_the_page(run):
    blocks = of("python")
    assert blocks[0].text.startswith(IMPORTS)
    after = 'assert y.dtype == x.dtype and jnp.isfinite(y).all(), "of the block above"\n'
    run(ARRAYS + after.join(block.text for block in blocks) + after)


def rows_of_calls():
    """(call, the code that its explanation quotes) of every row of the page's tables."""
    for call, words in re.findall(r"^\| `([^`]+)` \| (.*) \|$", pages.text_of("docs/python.md"), re.M):
        yield call, re.findall(r"`((?:kbj|kbundle)\.[^`]+|with [^`]+)`", words)


def test_every_call_of_the_page_runs(run):
    lines, quotes = [], []
    for code, quoted in rows_of_calls():
        for general, real in FILLED.items():
            code = code.replace(general, real)
        compile(code, "docs/python.md", "exec")
        lines.append(code)
        quotes += [one + " pass" if one.endswith(":") else one for one in quoted]
    assert len(lines) > 25 and len(quotes) > 20
    run("\n".join([IMPORTS, ARRAYS, NAMES, *lines, *quotes]))


def test_the_page_of_calls_names_every_function(run):
    functions = "(name for name in dir(kbj) if callable(getattr(kbj, name)) and name[0].islower() and not hasattr(kbundle, name))"
    there = run(f"{IMPORTS}print(*{functions})").split()
    page = pages.text_of("docs/python.md")
    assert len(there) > 40
    assert not [name for name in there if not re.search(rf"\bkbj\.{name}\b", page)]


def test_the_blocks_of_the_list_run(run):
    for block in of("functions", "docs/python.md"):
        run(block.text)


def test_the_function_of_cute_dsl_is_one_that_is_built():
    [block] = of("cute", "builder/AUTHORING.md")
    assert block.text in (ROOT / "tests/cute/library/scale.py").read_text()
