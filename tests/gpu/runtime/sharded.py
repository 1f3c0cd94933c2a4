"""Two GPUs, plain jit: calls are divided along what their manifests call independent. Results and gradients are plain JAX's, and the
compiled programs say nothing between the devices that plain JAX's do not (tests/sharding says the same of eight devices of a CPU)."""

import pathlib

import numpy as np

from report import Report
from sharding.collectives import collectives
from sharding.plain import plain_loss, plain_norm
from sharding.problems import random

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = str(ROOT / "build/kernels.kb")


def programs(jax, kbj, bf16):
    """name, ours, plain JAX's, [(operand, its sharding)], how many of the operands have gradients, tolerance."""
    rows, heads, wide = ("d",), (None, None, "d"), (None, "d")
    yield ("softmax, rows divided", lambda x: kbj.scaled_softmax(x, 0.5), lambda x: jax.nn.softmax(0.5 * x),
           [(random(8, 4, 48, 640), rows)], 1, 1e-5)
    yield ("rms_norm, rows divided", kbj.rms_norm, lambda x, gamma: plain_norm(x, gamma).astype(x.dtype),
           [(random(64, 1024), rows), (random(1024), ())], 2, 1e-4)
    yield ("cross entropy, rows divided", kbj.cross_entropy, plain_loss,
           [(random(64, 1000), rows), (np.arange(64, dtype=np.int32), rows)], 1, 1e-4)
    yield ("layer, rows divided", kbj.dense, lambda x, w, bias: x @ w + bias,
           [(bf16(128, 256), rows), (bf16(256, 512), ()), (bf16(512), ())], 3, 3e-2)
    yield ("mlp, columns then rows of weights divided", kbj.mlp, lambda x, w1, b1, w2, b2: jax.nn.gelu(x @ w1 + b1) @ w2 + b2,
           [(bf16(128, 256), ()), (bf16(256, 1024) / 16, wide), (bf16(1024), ("d",)), (bf16(1024, 256) / 32, ("d",)), (bf16(256), ())], 5, 3e-2)
    for name, spec in (("batch", rows), ("heads", heads)):
        yield (f"attention, {name} divided", lambda *qkv: kbj.dot_product_attention(*qkv, is_causal=True),
               lambda *qkv: jax.nn.dot_product_attention(*qkv, is_causal=True),
               [(bf16(2, 384, 8, 64), spec), (bf16(2, 384, 4, 64), spec), (bf16(2, 384, 4, 64), spec)], 3, 3e-2)


def error(found, wanted):
    """The largest difference of any result, by the largest value of it."""
    import jax
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    as_doubles = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in pairs]
    return float(max(np.max(np.abs(x - y)) / np.max(np.abs(y)) for x, y in as_doubles))


def check(report, jax, name, ours, theirs, arrays, count, tolerance):
    import jax.numpy as jnp

    def gradients_of(function):
        loss = lambda *of: (function(*of).astype(jnp.float32) ** 2).sum()
        return jax.value_and_grad(loss, tuple(range(count)))

    rows = []
    for what, one, other in (("forward", ours, theirs), ("with gradients", gradients_of(ours), gradients_of(theirs))):
        report.bar(f"{name}, {what}: largest error by the largest value", error(jax.jit(one)(*arrays), jax.jit(other)(*arrays)), tolerance)
        found, wanted = collectives(one, *arrays), collectives(other, *arrays)
        report.hold(f"{name}, {what}: no collective that plain JAX has not", all(found[kind] <= wanted.get(kind, 0) for kind in found),
                    f"{found}, plain JAX {wanted}")
        calls = jax.jit(one).lower(*arrays).compile().as_text().count('custom_call_target="kbundle.call.v1"')
        report.hold(f"{name}, {what}: calls kbundle", calls > 0)
        rows.append([name, what, calls, str(found or "none"), str(wanted or "none")])
    return rows


def main():
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    import kbundle
    import kbundle.jax as kbj
    report = Report("sharding on two GPUs, by plain jit")
    kbundle.use(BUNDLE)
    kbundle.allow_formulas(False)  # it is calls that are to be divided, small ones too
    jax.config.update("jax_default_matmul_precision", "highest")
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    put = lambda array, spec: jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))
    bf16 = lambda *shape: jnp.asarray(random(*shape), jnp.bfloat16)
    rows = []
    for name, ours, theirs, operands, count, tolerance in programs(jax, kbj, bf16):
        rows += check(report, jax, name, ours, theirs, [put(*operand) for operand in operands], count, tolerance)
    report.table("Collectives of the compiled programs, and how many arrays they are of", ["program", "", "calls", "kbundle", "plain JAX"], rows)
    report.finish()


if __name__ == "__main__":
    main()
