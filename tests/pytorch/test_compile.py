"""Promise: a call of kbundle.torch is one node of a compiled or exported graph, with gradients, in every process that opens the bundle."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

import torch._inductor.config  # noqa: E402

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("kernels")


def leaves(*shapes):
    return [torch.randn(shape).requires_grad_() for shape in shapes]


FUNCTIONS = {
    "softmax": (lambda x: kbt.scaled_softmax(x * 2, 0.5), [(4, 33)]),
    "masked": (lambda x: kbt.scaled_masked_softmax(x, x > 1), [(2, 3, 4, 7)]),
    "norm": (lambda x, g, r: sum(kbt.rms_norm(x, g, residual=r)), [(4, 33), (33,), (4, 33)]),
    "attention": (lambda q, k, v: kbt.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 4, 9, 16)] * 3),
    "softcap": (lambda q, k, v: kbt.scaled_dot_product_attention(q, k, v, score_mod="softcap", cap=5.0), [(2, 4, 9, 16)] * 3),
    "dropout": (lambda q, k, v: kbt.scaled_dot_product_attention(q, k, v, dropout_p=0.2), [(2, 4, 9, 16)] * 3),
    "product": (lambda a, b: kbt.matmul(a, b.t(), alpha=0.5), [(4, 16), (8, 16)]),
    "layers": (lambda x, w1, w2: kbt.mlp(x, w1, None, w2, None, "gelu"), [(4, 16), (16, 8), (8, 4)]),
    "gated layers": (lambda x, w1, w2: kbt.mlp(x, w1, None, w2, None, "swiglu"), [(4, 16), (16, 8), (4, 4)]),
    "cross entropy": (lambda x: kbt.cross_entropy(x, (x[:, 0] > 0).long(), label_smoothing=0.1), [(4, 33)]),
    "linear cross entropy": (lambda x, w: kbt.linear_cross_entropy(x, w, (x[:, 0] > 0).long(), chunk_rows=2), [(4, 16), (8, 16)]),
    "experts": (lambda x, r, w1, w2: sum(kbt.moe(x, r, w1, w2, 2, aux_loss_coefficient=0.1)), [(5, 8), (5, 3), (3, 8, 4), (3, 4, 8)]),
    "ragged": (lambda q, k, v: kbt.ragged_dot_product_attention(q, k, v, torch.tensor([0, 2, 5]), torch.tensor([0, 2, 5]), max_query_length=8,
                                                                max_key_value_length=8), [(5, 4, 16)] * 3),
}
FIRST = {"product": 1, "layers": 1, "gated layers": 1, "linear cross entropy": 1, "experts": 2}  # operands whose first size is of rows


def given(name, batch):
    """Operands with so many rows more than the first time."""
    shapes = FUNCTIONS[name][1]
    return leaves(*[(shape[0] + batch, *shape[1:]) if len(shape) > 1 and index < FIRST.get(name, len(shapes)) else shape
                    for index, shape in enumerate(shapes)])


def held_to_the_function(name, dynamic, backend, tolerance):
    torch.compiler.reset()
    function = FUNCTIONS[name][0]
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)
    for batch in (0, 1):  # the second shape is another problem
        inputs, both = given(name, batch), []
        for one in (compiled, function):
            torch.manual_seed(3)
            y = one(*inputs)
            both.append([y, *torch.autograd.grad((y ** 2).sum(), inputs)])
        for found, wanted in zip(*both):
            torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed shapes", "dynamic shapes"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_graph_break_and_the_same_numbers(name, dynamic):
    held_to_the_function(name, dynamic, "aot_eager", 1e-6)


@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler, which inductor needs on the CPU")
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed shapes", "dynamic shapes"])
@pytest.mark.parametrize("name", ["norm", "attention", "gated layers"])  # each costs seconds of the compiler
def test_inductor_compiles_it_to_the_same_numbers(name, dynamic, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch._inductor.config.patch(compile_threads=1):
        held_to_the_function(name, dynamic, "inductor", 1e-4)


SIZES = {
    "softmax": (lambda x: kbt.scaled_softmax(x * 2), lambda n: [(n, 33)]),
    "rows and columns": (lambda x: kbt.scaled_softmax(x), lambda n: [(2, n, 3 * n)]),
    "norm": (lambda x, g, r: sum(kbt.rms_norm(x, g, residual=r)), lambda n: [(n, 33), (33,), (n, 33)]),
    "attention": (lambda q, k, v: kbt.scaled_dot_product_attention(q, k, v, is_causal=True), lambda n: [(2, 4, n, 16)] * 3),
    "attention, statistics": (lambda q, k, v: kbt.call(None, "attention.sdpa_forward", q, k, v, scale=0.25, with_stats=True)[1],
                              lambda n: [(2, n, 4, 16), (2, n + 3, 4, 16), (2, n + 3, 4, 16)]),
}


@pytest.mark.parametrize("name", SIZES)
def test_dynamic_shapes_are_compiled_once_and_not_for_each(name):
    torch.compiler.reset()
    function, shapes = SIZES[name]
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return lambda *arguments: graph(*arguments)
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=True)
    for n in range(3, 25, 2):
        inputs = [torch.randn(shape) for shape in shapes(n)]
        torch.testing.assert_close(compiled(*inputs), function(*inputs))
    assert len(graphs) <= 2, "one of sizes that are equal by chance may go before"


def test_the_shapes_of_results_are_computed_as_the_bundle_computes_them(kernels):
    from kbundle.torch import _symbolic
    checked = 0
    for op in kernels.ops:
        for problem in op.problems:
            given = problem.attributes
            shapes = [tuple(operand["dims"]) if operand["present"] else None for operand in problem.operands]
            operands = tuple(("%s" % operand["dtype"], tuple(operand["dims"])) if operand["present"] else None for operand in problem.operands)
            try:
                inferred = kernels.infer(op.name, operands, kernels.normal_attributes(op.name, given), 1)
            except kbundle.Error:
                continue  # no kernel for CPUs
            known = _symbolic.bind(op, shapes, given)
            for result, found in zip(op.results, inferred["results"], strict=True):
                if found["present"]:
                    assert _symbolic.dims(result.shape, known) == found["dims"], (op.name, problem.text, result.shape)
                    checked += 1
    assert checked > 100


def test_the_operator_passes_torchs_own_checks(kernels):
    kbt.register(kernels)
    for packet, inputs, attributes in (("softmax_scaled_forward", leaves((3, 4)), {"scale": 2.0}),
                                       ("norm_rmsnorm_forward", leaves((3, 8), (8,)), {}),
                                       ("norm_layernorm_forward", [*leaves((3, 8), (8,)), None, *leaves((3, 8))], {}),
                                       ("attention_sdpa_forward", leaves(*[(2, 5, 2, 8)] * 3), {"scale": 0.5, "with_stats": True})):
        [overload] = getattr(torch.ops.kbundle, packet).overloads()
        torch.library.opcheck(getattr(getattr(torch.ops.kbundle, packet), overload), tuple(inputs), attributes)


def test_fake_and_meta_tensors_need_no_memory(kernels):
    y = kbt.scaled_softmax(torch.empty(1 << 20, 1 << 20, device="meta"))
    assert y.shape == (1 << 20, 1 << 20) and y.device.type == "meta"
    with torch._subclasses.FakeTensorMode():
        o = kbt.scaled_dot_product_attention(*[torch.empty(8, 64, 8192, 128, dtype=torch.bfloat16)] * 3)
    assert o.shape == (8, 64, 8192, 128) and o.dtype == torch.bfloat16


@pytest.mark.parametrize("function, dims", [("scaled_softmax", 0), ("scaled_softmax", 1)])
def test_vmap(function, dims):
    x = torch.randn(3, 4, 5)
    torch.testing.assert_close(torch.func.vmap(kbt.scaled_softmax, in_dims=dims, out_dims=dims)(x).movedim(dims, 0),
                               torch.softmax(x.movedim(dims, 0), -1))


LOAD = """
import sys, torch, kbundle, kbundle.torch as kbt
kbt.register(kbundle.open(sys.argv[1], sys.argv[2]))
program = torch.export.load(sys.argv[3]).module()
x = torch.linspace(-1, 1, 15).reshape(3, 5)
torch.testing.assert_close(program(x), torch.softmax(x, -1))
"""


def test_an_exported_program_runs_in_another_process(kernels, tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x):
            return kbt.scaled_softmax(x)
    program = torch.export.export(Model(), (torch.ones(3, 5),))
    assert [str(node.target) for node in program.graph.nodes if node.op == "call_function"] == [
        "kbundle.softmax_scaled_forward.i" + kernels.op("softmax.scaled_forward").interface]
    torch.export.save(program, tmp_path / "program.pt2")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "ffi/python"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run([sys.executable, "-c", LOAD, kernels.path, kernels.name, tmp_path / "program.pt2"], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_checkpoint_computes_again_what_it_did_not_keep():
    [x] = leaves((4, 33))
    again = torch.utils.checkpoint.checkpoint(lambda x: kbt.scaled_softmax(x * 2) ** 2, x, use_reentrant=False)
    [found] = torch.autograd.grad(again.sum(), [x])
    [wanted] = torch.autograd.grad((torch.softmax(x * 2, -1) ** 2).sum(), [x])
    torch.testing.assert_close(found, wanted)
