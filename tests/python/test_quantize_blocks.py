"""Promise: kbj.quantize_blocks and kbj.quantize_mxfp8 give the scales and codes that plain formulas give, under jit and vmap, and scales
lie as those say who read them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform", "kernels")
MOST = {jnp.float8_e4m3fn: 448.0, jnp.float8_e5m2: 57344.0}
FLOATS = [jnp.float32, jnp.float16, jnp.bfloat16]


def values(*shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 6, shape), dtype)


def blocks_of(x, rows, columns):
    m, n = x.shape
    wide = np.pad(np.asarray(x, np.float32), ((0, -m % rows), (0, -n % columns)))
    return wide.reshape(wide.shape[0] // rows, rows, -1, columns)


def unblocked(blocks, shape):
    return blocks.reshape(blocks.shape[0] * blocks.shape[1], -1)[:shape[0], :shape[1]]


def bytes_of(codes):
    return np.asarray(codes).view(np.uint8)


def formula(x, block, fp8, power_of_two=False, epsilon=0.0):
    """By NumPy and ml_dtypes."""
    blocks = blocks_of(x, *block)
    scale_inv = np.maximum(np.abs(blocks).max(axis=(1, 3)), np.float32(epsilon)) / np.float32(MOST[fp8])
    if power_of_two:
        scale_inv = 2.0 ** np.ceil(np.log2(scale_inv.astype(np.float64)))
    scale_inv = scale_inv.astype(np.float32)
    scaled = np.clip(blocks * (np.float32(1) / scale_inv)[:, None, :, None], -MOST[fp8], MOST[fp8])
    return unblocked(scaled.astype(np.dtype(fp8)).view(np.uint8), x.shape), scale_inv


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fp8", MOST)
@pytest.mark.parametrize("block", [(1, 128), (128, 128)])
def test_each_block_has_its_own_scale(dtype, fp8, block):
    x = values(131, 264, dtype=dtype)
    for how in (dict(), dict(power_of_two=True), dict(amax_epsilon=30.0)):
        q, scale_inv = jax.jit(lambda x: kbj.quantize_blocks(x, fp8, block, **how))(x)
        wanted, scales = formula(x, block, fp8, how.get("power_of_two", False), how.get("amax_epsilon", 0.0))
        np.testing.assert_array_equal(scale_inv, scales)
        assert q.dtype == fp8
        np.testing.assert_array_equal(bytes_of(q), wanted)


def test_scales_in_columns_are_those_in_rows_transposed():
    x = values(2, 3, 300, dtype=jnp.bfloat16)
    q, rows = kbj.quantize_blocks(x)
    again, columns = kbj.quantize_blocks(x, scales="columns")
    assert q.shape == x.shape and rows.shape == (6, 3) and columns.shape == (3, 8)
    np.testing.assert_array_equal(bytes_of(q), bytes_of(again))
    np.testing.assert_array_equal(columns[:, :6], rows.T)
    assert not np.asarray(columns[:, 6:]).any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fp8", MOST)
def test_mxfp8_has_powers_of_two_both_ways(dtype, fp8):
    x = values(70, 200, dtype=dtype)
    found = jax.jit(lambda x: kbj.quantize_mxfp8(x, fp8, columnwise=True))(x)
    assert found.scales.shape == (128, 8) and found.column_scales.shape == (4, 256)
    assert found.scales.dtype == found.column_scales.dtype == jnp.float8_e8m0fnu
    for block, codes, scales in (((1, 32), found.data, found.scales), ((32, 1), found.column_data, found.column_scales)):
        blocks = blocks_of(x, *block)
        amax = np.abs(blocks).max(axis=(1, 3))
        exponents = np.ceil(np.log2((amax * (np.float32(1) / np.float32(MOST[fp8]))).astype(np.float64)))
        down, across = exponents.shape
        np.testing.assert_array_equal(bytes_of(scales)[:down, :across], exponents + 127)
        assert not bytes_of(scales)[down:].any() and not bytes_of(scales)[:, across:].any()
        scaled = np.clip(blocks * 2.0 ** -exponents[:, None, :, None], -MOST[fp8], MOST[fp8]).astype(np.float32)
        np.testing.assert_array_equal(bytes_of(codes), unblocked(scaled.astype(np.dtype(fp8)).view(np.uint8), x.shape))


def test_one_way_alone_is_what_it_is_beside_the_other():
    x = values(40, 72, dtype=jnp.bfloat16)
    both, rows, columns = (kbj.quantize_mxfp8(x, rowwise=r, columnwise=c) for r, c in ((True, True), (True, False), (False, True)))
    assert rows.column_data is None and rows.column_scales is None and columns.data is None and columns.scales is None
    for one, other in ((both.data, rows.data), (both.scales, rows.scales), (both.column_data, columns.column_data),
                       (both.column_scales, columns.column_scales)):
        np.testing.assert_array_equal(bytes_of(one), bytes_of(other))


def test_blocks_of_zeros_and_of_what_is_not_finite_have_scales():
    x = np.zeros((4, 128), np.float32)
    x[1, 5], x[2, 5], x[3, 5] = np.inf, np.nan, 1e-38
    q, scale_inv = kbj.quantize_blocks(x)
    np.testing.assert_array_equal(scale_inv[:3, 0], [1, 1, 1])
    assert 0 < scale_inv[3, 0] <= 2.0**-126
    assert float(q[1, 5]) == 448 and np.isnan(float(q[2, 5]))
    mx = kbj.quantize_mxfp8(x)
    np.testing.assert_array_equal(bytes_of(mx.scales)[:3, 0], [0, 0xfe, 0xff])
    assert float(mx.data[1, 5]) == 448 and np.isnan(float(mx.data[2, 5])) and not np.asarray(mx.data[0], np.float32).any()


@pytest.mark.parametrize("rows, columns", [(0, 8), (8, 0), (1, 1)])
def test_any_size_is_taken(rows, columns):
    x = values(rows, columns)
    q, scale_inv = kbj.quantize_blocks(x)
    assert q.shape == (rows, columns) and scale_inv.shape == (rows, -(-columns // 128))
    mx = kbj.quantize_mxfp8(x, columnwise=True)
    assert mx.data.shape == mx.column_data.shape == (rows, columns)
    assert mx.scales.shape == (-(-rows // 128) * 128, -(-columns // 128) * 4)


def test_a_batch_is_quantized_one_by_one():
    x = values(3, 4, 140)
    for function in (kbj.quantize_blocks, lambda x: kbj.quantize_mxfp8(x, columnwise=True)):
        for i, batched in enumerate(zip(*jax.tree.leaves(jax.vmap(function)(x)))):
            for found, alone in zip(batched, jax.tree.leaves(function(x[i])), strict=True):
                np.testing.assert_array_equal(np.asarray(found).view(np.uint8), np.asarray(alone).view(np.uint8))


def test_what_has_no_gradient_says_so():
    for name, function in (("quantize_blocks", lambda x: kbj.quantize_blocks(x)[1].sum()),
                           ("quantize_mxfp8", lambda x: kbj.quantize_mxfp8(x).data.astype(jnp.float32).sum())):
        with pytest.raises(kbundle.Error, match="%s: FP8 codes have no gradient" % name):
            jax.grad(function)(values(3, 4))


def test_wrong_arguments_are_named():
    x = jnp.ones((2, 3))
    for wrong, message in ((lambda: kbj.quantize_blocks(x, jnp.int8), "quantize_blocks: dtype is"),
                           (lambda: kbj.quantize_blocks(x, block=(1, 64)), r"quantize_blocks: block is \(1, 64\)"),
                           (lambda: kbj.quantize_blocks(x, block=(128, 128), scales="columns"), "quantize_blocks: scales is 'columns'"),
                           (lambda: kbj.quantize_blocks(x, amax_epsilon=-1), "quantize_blocks: amax_epsilon is -1"),
                           (lambda: kbj.quantize_mxfp8(x, rowwise=False), "quantize_mxfp8: rowwise and columnwise are both False"),
                           (lambda: kbj.quantize_mxfp8(1.0), r"quantize_mxfp8: x has shape \(\)")):
        with pytest.raises(ValueError, match=message):
            wrong()


BOTH_WAYS = [(rows, columns) for rows in (None, "groups", "tiles") for columns in (None, "groups", "tiles") if rows or columns]


def by_one_way(x, fp8, blocks, power_of_two=False):
    """Codes and scales of one op a way, scales as products load them; None of both where blocks is None."""
    if blocks is None:
        return None, None
    layout = dict(scales="columns") if blocks == "groups" else dict(block=(128, 128))
    return kbj.quantize_blocks(x, fp8, power_of_two=power_of_two, **layout)


def same_bits(found, wanted):
    assert (found is None) == (wanted is None)
    if found is not None:
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(bytes_of(found), bytes_of(wanted))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fp8", MOST)
@pytest.mark.parametrize("rows, columns", BOTH_WAYS)
def test_both_ways_in_one_pass_are_each_way_alone(dtype, fp8, rows, columns):
    x = values(3, 47, 264, dtype=dtype)
    how = dict(power_of_two=rows == "tiles")
    made = jax.jit(lambda x: kbj.quantize_block_transpose(x, fp8, rowwise=rows, transposed=columns, dbias=True, **how))(x)
    flat = x.reshape(-1, x.shape[-1])
    wanted = *by_one_way(flat, fp8, rows, **how), *by_one_way(flat.T, fp8, columns, **how)
    assert made.data is None or made.data.shape == x.shape
    for found, one in zip((made.data, made.scale_inv, made.transposed, made.transposed_scale_inv), wanted):
        same_bits(None if found is None else found.reshape(one.shape), one)
    sums = np.asarray(flat, np.float64).sum(0)
    np.testing.assert_allclose(np.asarray(made.dbias, np.float64), sums, rtol=8e-3, atol=1e-4 * np.abs(sums).max())


ACTIVATIONS = {"gelu": jax.nn.gelu, "silu": jax.nn.silu, "relu": jax.nn.relu, "squared_relu": lambda z: jax.nn.relu(z) ** 2}
GATED = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu"}


def applied(x, activation):
    """In float32."""
    x = x.astype(jnp.float32)
    if activation in GATED:
        return ACTIVATIONS[GATED[activation]](x[..., 0, :]) * x[..., 1, :]
    return ACTIVATIONS[activation](x)


def number_of(codes, scales):
    """What codes of lines stand for, with scales of groups as products load them."""
    return np.asarray(codes, np.float64) * np.asarray(scales, np.float64).T[:codes.shape[0]].repeat(128, 1)[:, :codes.shape[1]]


def near_by_rms(found, wanted, tolerance):
    assert np.linalg.norm(found - wanted) <= tolerance * np.linalg.norm(wanted)


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED])
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_activation_in_front_is_that_of_its_result_in_memory(activation, dtype):
    x = values(133, *((2, 256) if activation in GATED else (200,)), dtype=dtype)
    made = jax.jit(lambda x: kbj.quantize_block_activation(x, activation))(x)
    wanted = kbj.quantize_block_transpose(applied(x, activation).astype(dtype))
    near_by_rms(number_of(made.data, made.scale_inv), number_of(wanted.data, wanted.scale_inv), 5e-3)
    near_by_rms(number_of(made.transposed, made.transposed_scale_inv), number_of(wanted.transposed, wanted.transposed_scale_inv), 5e-3)
    np.testing.assert_allclose(made.scale_inv, wanted.scale_inv, rtol=8e-3)


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_gradient_in_front_is_that_of_its_result_in_memory(activation, dtype):
    lead = (2, 65)
    x, dy = values(*lead, *((2, 256) if activation in GATED else (200,)), dtype=dtype), values(*lead, 256 if activation in GATED else 200,
                                                                                               dtype=dtype, seed=1)
    made = jax.jit(lambda dy, x: kbj.quantize_block_activation_gradient(dy, x, activation, jnp.float8_e5m2, dbias=True))(dy, x)
    dz = jax.vjp(lambda x: applied(x, activation), x)[1](dy.astype(jnp.float32))[0]
    wanted = kbj.quantize_block_transpose(dz.reshape(130, -1), jnp.float8_e5m2, dbias=True)
    assert made.data.shape == x.shape and made.dbias.shape == x.shape[2:]
    near_by_rms(number_of(made.data.reshape(130, -1), made.scale_inv), number_of(wanted.data, wanted.scale_inv), 5e-3)
    near_by_rms(number_of(made.transposed, made.transposed_scale_inv), number_of(wanted.transposed, wanted.transposed_scale_inv), 5e-3)
    near_by_rms(np.asarray(made.dbias, np.float64).ravel(), np.asarray(wanted.dbias, np.float64), 1.6e-2)


def test_both_ways_refuse_what_they_do_not_take():
    x = values(4, 2, 64)
    with pytest.raises(ValueError, match="rowwise and transposed are both None"):
        kbj.quantize_block_transpose(x, rowwise=None, transposed=None)
    with pytest.raises(ValueError, match="rowwise is 'rows'; it must be None, 'groups' or 'tiles'"):
        kbj.quantize_block_transpose(x, rowwise="rows")
    with pytest.raises(ValueError, match="H must be a multiple of 128"):
        kbj.quantize_block_activation_gradient(x[:, 0], x, "swiglu")
    with pytest.raises(ValueError, match="dy is float32.4, 63"):
        kbj.quantize_block_activation_gradient(x[:, 0, :63], x[:, 0], "gelu")
    with pytest.raises(kbundle.Error, match="FP8 codes have no gradient"):
        jax.grad(lambda x: kbj.quantize_block_transpose(x).scale_inv.sum())(x)
