"""Promise: torch.func takes gradients of ops and of families' functions, alone and through vmap in any order; a second derivative is all of it or
an error; and a forward derivative, which no op has, is an error and never zero."""

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")
from torch.autograd import forward_ad  # noqa: E402
from torch.func import grad, jvp, vjp, vmap  # noqa: E402

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402

pytestmark = pytest.mark.usefixtures("kernels")
LABELS, OFFSETS, SIZES = torch.arange(8), torch.tensor([0, 5, 16], dtype=torch.int32), torch.tensor([3, 0, 5, 0], dtype=torch.int32)
MASK = torch.arange(8 * 16).reshape(8, 16) % 3 == 0
CALLS = {  # name: function, shapes
    "scaled_softmax": (lambda x: kbt.scaled_softmax(x, 0.5), (8, 16)),
    "scaled_masked_softmax": (lambda x: kbt.scaled_masked_softmax(x, MASK), (8, 16)),
    "rms_norm": (kbt.rms_norm, (8, 16), (16,)),
    "layer_norm": (lambda x, gamma, beta: kbt.layer_norm(x, gamma, beta, residual=x * 2)[0], (8, 16), (16,), (16,)),
    "attention": (lambda q: kbt.scaled_dot_product_attention(q, q, q, is_causal=True), (2, 3, 5, 8)),
    "packed": (lambda qkv: kbt.packed_dot_product_attention(qkv, is_causal=True), (2, 5, 3, 2, 8)),
    "ragged": (lambda q: kbt.ragged_dot_product_attention(q, q, q, OFFSETS, OFFSETS, max_query_length=11, max_key_value_length=11), (16, 2, 8)),
    "cross_entropy": (lambda x: kbt.cross_entropy(x, LABELS), (8, 16)),
    "linear_cross_entropy": (lambda x, w: kbt.linear_cross_entropy(x, w, LABELS), (8, 16), (12, 16)),
    "matmul": (kbt.matmul, (8, 16), (16, 4)),
    "dense": (lambda x, w, bias: kbt.dense(x, w, bias, activation="gelu"), (8, 16), (16, 4), (4,)),
    "mlp": (lambda x, w1, w2: kbt.mlp(x, w1, None, w2, None, "swiglu"), (8, 16), (16, 8), (4, 16)),
    "grouped_matmul": (lambda a, b: kbt.grouped_matmul(a, b, SIZES), (8, 16), (4, 16, 4)),
    "moe": (lambda x, logits, w_in, w_out: kbt.moe(x, logits, w_in, w_out, k=2), (8, 16), (8, 4), (4, 16, 8), (4, 4, 16)),
    "fake_quantize": (kbt.fake_quantize, (8, 16)),
}


def case(name):
    """(a number of the function's tensors, tensors)"""
    function, *shapes = CALLS[name]
    generator = torch.Generator().manual_seed(3)
    return lambda *tensors: function(*tensors).pow(2).sum(), [torch.randn(shape, generator=generator) for shape in shapes]


def plain(loss, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(loss(*leaves), leaves)


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_autograd_alone_and_with_vmap_inside_and_around(name):
    loss, tensors = case(name)
    numbers, wanted = tuple(range(len(tensors))), plain(loss, tensors)
    same(grad(loss, numbers)(*tensors), wanted)
    same(vjp(loss, *tensors)[1](torch.tensor(1.0)), wanted)
    batches = [torch.stack([tensor, 1.5 * tensor]) for tensor in tensors]
    wanted = [torch.stack(both) for both in zip(wanted, plain(loss, [1.5 * tensor for tensor in tensors]))]
    same(vmap(grad(loss, numbers))(*batches), wanted)
    same(grad(lambda *batches: vmap(loss)(*batches).sum(), numbers)(*batches), wanted)
    same(plain(lambda *batches: vmap(loss)(*batches).sum(), batches), wanted)  # of tensors that a vmap stands before


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_vmap_is_compiled_and_its_tensors_may_want_gradients(backend):
    loss, tensors = case("scaled_softmax")
    batches = [torch.stack([tensor, 1.5 * tensor]) for tensor in tensors]
    compiled = torch.compile(vmap(loss), backend=backend)
    torch.testing.assert_close(compiled(*batches), vmap(loss)(*batches))
    same(plain(lambda *batches: compiled(*batches).sum(), batches), plain(lambda *batches: vmap(loss)(*batches).sum(), batches))


def second(loss, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(sum(one.pow(2).sum() for one in torch.autograd.grad(loss(*leaves), leaves, create_graph=True)), leaves)


def tanh_gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


GATES = {"swiglu": torch.nn.functional.silu, "geglu": tanh_gelu, "reglu": torch.relu}


@pytest.mark.parametrize("reduced", [torch.sum, lambda y: y.pow(2).sum()], ids=["sum", "squares"])
@pytest.mark.parametrize("activation", ["gelu", "relu", *GATES])
def test_second_derivatives_of_layers_have_all_their_parts(activation, reduced):
    if activation in GATES:
        tensors = case("mlp")[1]
        ours = lambda x, w1, w2: reduced(kbt.mlp(x, w1, None, w2, None, activation))

        def theirs(x, w1, w2):
            first, other = (x @ w1).chunk(2, -1)
            return reduced((GATES[activation](first) * other) @ w2)
    else:
        tensors = case("dense")[1]
        ours = lambda x, w, bias: reduced(kbt.dense(x, w, bias, activation=activation))
        theirs = lambda x, w, bias: reduced({"gelu": tanh_gelu, "relu": torch.relu}[activation](x @ w + bias))
    for one, other in zip(second(ours, tensors), second(theirs, tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    penalty = lambda loss: lambda x: grad(loss)(x, *tensors[1:]).pow(2).sum()
    torch.testing.assert_close(grad(penalty(ours))(tensors[0]), grad(penalty(theirs))(tensors[0]), rtol=1e-3, atol=1e-3)


def test_a_gradient_that_has_none_is_an_error_and_not_left_out():
    x = torch.randn(8, 16, requires_grad=True)
    with pytest.raises(kbundle.Error, match="differentiating op 'softmax.scaled_backward'"):
        grad(lambda x: grad(lambda x: kbt.scaled_softmax(x).pow(2).sum())(x).sum())(x.detach())
    [gradient] = torch.autograd.grad(kbt.linear_cross_entropy(x, torch.randn(12, 16), LABELS), x, create_graph=True)
    with pytest.raises(RuntimeError, match="linear_cross_entropy has no second derivative"):
        (gradient.sum() + x.sum()).backward()


def test_a_forward_derivative_is_an_error_where_there_is_one_to_pass_on():
    x = torch.randn(8, 16)
    kbt.scaled_softmax(x)  # known from here on, and asked anew where derivatives are taken
    with pytest.raises(kbundle.Error, match="'softmax.scaled_forward' under torch.func.jvp.*use torch.func.vjp"):
        jvp(kbt.scaled_softmax, (x,), (x,))
    with pytest.raises(kbundle.Error, match="no forward derivatives"):
        torch.func.jacfwd(kbt.scaled_softmax)(x)
    with pytest.raises(Exception, match="no forward derivatives"):
        torch.compile(lambda x: jvp(kbt.scaled_softmax, (x,), (x,)), backend="eager")(x)
    with forward_ad.dual_level():
        torch.testing.assert_close(kbt.scaled_softmax(x), torch.softmax(x, -1))
        with pytest.raises(kbundle.Error, match="no forward derivatives"):
            kbt.scaled_softmax(forward_ad.make_dual(x, x))
