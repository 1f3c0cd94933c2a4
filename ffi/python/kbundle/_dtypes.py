"""Dtypes: the names that kbundle, NumPy and JAX have for each, and the numbers of dtype.h."""

from kbundle._errors import Error

# kbundle's name: number (dtype.h), then the names NumPy and JAX use.
_DTYPES = {
    "bool": (1, "bool_"), "u8": (2, "uint8"), "i8": (3, "int8"), "u16": (4, "uint16"),
    "i16": (5, "int16"), "u32": (6, "uint32"), "i32": (7, "int32"), "u64": (8, "uint64"),
    "i64": (9, "int64"), "f16": (10, "float16"), "bf16": (11, "bfloat16"), "f32": (12, "float32"),
    "f64": (13, "float64"), "e4m3": (14, "float8_e4m3fn"), "e5m2": (15, "float8_e5m2"),
    "e8m0": (16, "float8_e8m0fnu"),
}
_NAMES = {}
for _name, (_number, _long) in _DTYPES.items():
    _NAMES[_name] = _NAMES[_long] = _name
# kbundle's name -> the name that jax.numpy.dtype understands
LONG_NAMES = {name: long.rstrip("_") for name, (_, long) in _DTYPES.items()}


def dtype_number(name):
    """The number of dtype.h of one of kbundle's names."""
    return _DTYPES[name][0]


def dtype_name(dtype):
    """kbundle's name of a dtype given as text, dtype of NumPy, JAX or PyTorch, or scalar type."""
    for name in (dtype if isinstance(dtype, str) else None, getattr(dtype, "name", None),
                 getattr(getattr(dtype, "dtype", None), "name", None),
                 getattr(dtype, "__name__", None), str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else None):
        if isinstance(name, str) and name in _NAMES:
            return _NAMES[name]
    raise Error("INVALID_ARGUMENT", "reading a dtype: %r is none that an op can have; known are %s"
                % (dtype, ", ".join(_DTYPES)))
