"""The quantize ops on numbers that matter, the same on every device, every variant forced: every 16-bit float, random bits as floats,
ties and subnormal numbers of FP8, tensors of zeros, of NaN and of nothing finite; and tiles that end anywhere."""

import ml_dtypes
import numpy as np

from conformance import family

SIZES = [(1, 1), (3, 8), (15, 65), (16, 64), (33, 7), (128, 64), (129, 72), (272, 24), (600, 40), (1, 3000), (3000, 1)]
SCALES = [1.0, 0.37, 2.0**-20, 1e30]


def tensors():
    """(name, float64 array of two dims) of values that may be any."""
    rng = np.random.default_rng(0)
    every = np.arange(1 << 16, dtype=np.uint16)
    yield "every bf16", every.view(ml_dtypes.bfloat16).astype(np.float64).reshape(256, 256)
    yield "every f16", every.view(np.float16).astype(np.float64).reshape(128, 512)
    yield "random bits", rng.integers(0, 1 << 32, (64, 1001), dtype=np.uint64).astype(np.uint32).view(np.float32).astype(np.float64)
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        numbers = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
        numbers = np.sort(numbers[np.isfinite(numbers)])
        middles = (numbers[1:] + numbers[:-1]) / 2
        beside = np.concatenate([middles, middles * (1 + 2.0**-7), middles * (1 - 2.0**-7), middles * (1 + 2.0**-22)])
        yield f"between the numbers of {np.dtype(dtype).name}", np.resize(beside, (40, 32))
    yield "zeros", np.zeros((9, 24))
    yield "a row of zeros", rng.standard_normal((9, 24)) * (np.arange(9) != 4)[:, None]
    for name, value in (("NaN", np.nan), ("inf", np.inf), ("-inf", -np.inf)):
        x = rng.standard_normal((200, 72))
        x[150, 33] = value
        yield f"one {name}", x
        yield f"all {name}", np.full((5, 16), value)
    yield "subnormal", np.full((8, 32), 2.0**-130)
    yield "huge", rng.standard_normal((8, 32)) * 6e4


def cases(reference):
    """(name, op, operands by name, attributes) with arrays in float64."""
    for name, x in tensors():
        yield name, "amax", {"x": x}, {}
        for scale in [None, *SCALES]:
            given = {"x": x} if scale is None else {"x": x, "scale": np.array([scale])}
            by = name if scale is None else f"{name} * {scale:g}"
            yield by, "per_tensor", given, {}
            yield by, "per_tensor_transpose", given, {}
        yield name, "per_group", {"x": x}, {}
        yield name, "per_group", {"x": x}, {"scales": "columns", "power_of_two": True}
        yield name, "per_tile", {"x": x}, {}
        yield name, "per_tile", {"x": x}, {"power_of_two": True, "amax_epsilon": 1e-4}
        yield name, "mxfp8", {"x": x}, {"columnwise": True}
        yield name, "per_block_transpose", {"x": x}, {}
        yield name, "per_block_transpose", {"x": x}, {"rowwise": "tiles", "power_of_two": True, "amax_epsilon": 1e-4}
    rng = np.random.default_rng(1)
    for rows, columns in SIZES:
        given = {"x": rng.standard_normal((rows, columns)) + 0.25, "scale": np.array([10.0])}
        for layout in (dict(), dict(rowwise=False), dict(transposed=False)):
            yield f"{rows} x {columns}", "per_tensor_transpose", given, dict(layout, dbias=True)
        del given["scale"]
        yield f"{rows} x {columns}", "per_group", given, {"scales": "columns", "amax_epsilon": 1.5}
        yield f"{rows} x {columns}", "per_tile", given, {}
        for layout in (dict(), dict(columnwise=True), dict(rowwise=False, columnwise=True)):
            yield f"{rows} x {columns}", "mxfp8", given, layout
        for rowwise in ("none", "groups", "tiles"):
            for transposed in ("groups", "tiles") if rowwise == "none" else ("none", "groups", "tiles"):
                yield f"{rows} x {columns}", "per_block_transpose", given, dict(rowwise=rowwise, transposed=transposed, dbias=True)
    yield from activations(rng)
    yield from block_activations(reference, rng)
    yield from groups(rng)
    codes = np.arange(256, dtype=np.uint8)
    for scale_inv in (1.0, 0.3, 1e-30, 1e38, np.nan, np.inf):
        given = np.tile(codes.view(ml_dtypes.float8_e5m2).astype(np.float64), 5).reshape(10, 128)
        yield f"every code * {scale_inv:g}", "dequantize", {"q": given, "scale_inv": np.array([scale_inv])}, {}
        given = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64).reshape(2, 128)
        yield f"every code * {scale_inv:g}", "dequantize", {"q": given, "scale_inv": np.array([scale_inv])}, {}
    yield from histories(rng)


def activations(rng):
    """Whatever the numbers are, and tiles that end anywhere; then the gradients of the same."""
    for function in ("gelu", "silu", "relu", "squared_relu", "clamped_silu"):
        for rows, columns in SIZES:
            for gates in (1, 2) if function != "clamped_silu" else (2,):
                given = {"x": rng.standard_normal((rows, gates, columns)) * 3, "scale": np.array([10.0])}
                yield f"{rows} x {columns}", "per_tensor_activation", given, {"function": function, "transposed": True}
        x = rng.standard_normal((16, 2, 64)) * 3
        x[:6, 0, 5], x[6:9, 1, 7] = [0.0, -0.0, np.nan, np.inf, 1e4, -1e4], [0.0, np.nan, -1e4]
        yield "strange numbers", "per_tensor_activation", {"x": x, "scale": np.array([2.0])}, {"function": function}
        yield from activation_gradients(rng, function, x)


def activation_gradients(rng, function, strange):
    for rows, columns in SIZES:
        for gates in (1, 2) if function != "clamped_silu" else (2,):
            given = {"dy": rng.standard_normal((rows, columns)), "x": rng.standard_normal((rows, gates, columns)) * 3, "scale": np.array([10.0])}
            for layout in (dict(transposed=True, dbias=True), dict(rowwise=False, transposed=True), dict(dbias=True)):
                yield f"{rows} x {columns}", "per_tensor_activation_gradient", given, {"function": function, **layout}
    dy = rng.standard_normal((16, 64))
    yield "strange numbers", "per_tensor_activation_gradient", {"dy": dy, "x": strange, "scale": np.array([2.0])}, {"function": function}
    dy[:3, 9], dy[5, :3] = [np.nan, np.inf, -np.inf], 0
    x = np.abs(strange) if function == "relu" else np.where(np.isfinite(strange), strange, 1.0).clip(-8, 8)
    yield "strange gradients", "per_tensor_activation_gradient", {"dy": dy, "x": x, "scale": np.array([2.0])}, {"function": function}


def block_activations(reference, rng):
    """The same by blocks, and their gradients. What is made is rounded to x's dtype, so numbers are such that f16 holds what they become."""
    away = lambda shape: reference.away_from_zero(rng, shape)
    for function in ("gelu", "silu", "relu", "squared_relu", "clamped_silu"):
        for rows, columns in [*SIZES, (130, 256)]:
            for gates in (1, 2) if function != "clamped_silu" else (2,):
                given = {"x": away((rows, gates, columns))}
                for layout in (dict(), dict(transposed="tiles"), dict(rowwise="none")):
                    yield f"{rows} x {columns}", "per_block_activation", given, {"function": function, **layout}
                if gates == 2 and columns % 128:
                    continue
                given = given | {"dy": away((rows, columns))}
                for layout in (dict(dbias=True), dict(rowwise="tiles"), dict(transposed="none", dbias=True)):
                    yield f"{rows} x {columns}", "per_block_activation_gradient", given, {"function": function, **layout}
        x, dy = away((16, 2, 128)), away((16, 128))
        x[:6, 0, 5], x[6:9, 1, 7] = [0.0, -0.0, np.nan, np.inf, 100.0, -100.0], [0.0, np.nan, -100.0]
        yield "strange numbers", "per_block_activation", {"x": x}, {"function": function}
        yield "strange numbers", "per_block_activation_gradient", {"dy": dy, "x": x}, {"function": function}
        dy[:3, 9] = [np.nan, np.inf, -np.inf]
        finite = np.where(np.isfinite(x) & (np.abs(x) < 8), x, 1.0)
        if function == "relu":
            finite = np.abs(finite)
        yield "strange gradients", "per_block_activation_gradient", {"dy": dy, "x": finite}, {"function": function}


def groups(rng):
    """Groups of many rows, of one and of none, that end anywhere; sizes that overrun, that are negative, and that leave rows over."""
    wrong = np.array([5, -3, 2**31 - 1, 7, 0])
    for rows, columns in SIZES:
        one_each, many = np.ones(rows, np.int64), rng.multinomial(rows, np.full(5, 0.2))
        for name, sizes in (("of five groups", many), ("of one group", np.array([rows])), ("a group each", one_each), ("wrong sizes", wrong),
                            ("some left over", np.array([0, rows // 3, 0, rows // 4])), ("no rows", np.zeros(3)), ("no groups", np.zeros(0))):
            given = {"x": rng.standard_normal((rows, columns)) * 2.0 ** rng.integers(-9, 9, (rows, 1)), "sizes": sizes}
            yield f"{rows} x {columns}, {name}", "per_tensor_grouped", given, {"transposed": True}
            given = given | {"scale": rng.random(len(sizes)) * 100}
            for layout in (dict(transposed=True), dict(transposed=True, rowwise=False), dict()):
                yield f"{rows} x {columns}, {name}", "per_tensor_grouped", given, layout
    x = rng.standard_normal((300, 72))
    x[20, 3], x[150, 70], x[299, 0] = np.nan, np.inf, np.nan  # the last one is of no group
    for scale in (None, np.array([3.0, np.inf, 2.0**-20, 1e30])):
        given = {"x": x, "sizes": np.array([18, 70, 150, 40])} | ({} if scale is None else {"scale": scale})
        yield "strange numbers", "per_tensor_grouped", given, {"transposed": True}


def histories(rng):
    for length in (1, 2, 5, 300, 1024):
        for name, newest in (("usual", None), ("zero", 0.0), ("NaN", np.nan), ("inf", np.inf), ("tiny", 1e-38)):
            history, amax = rng.random((7, length)) * 10, rng.random(7) * 10
            if newest is not None:
                amax[::2], history[::2] = newest, 0 if newest != newest else newest
            given = {"history": history, "amax": amax, "scale": rng.random(7) + 1}
            for algorithm in ("max", "most_recent"):
                yield f"{name}, {length} steps", "update_scale", given, {"format": "e4m3", "margin": length % 3 - 1, "algorithm": algorithm}


class Cases(family.Cases):
    """Each variant of the family on each case that it is legal for."""

    def __init__(self, bundle_path, device, roots):
        super().__init__("quantize", cases, bundle_path, device, roots)
