"""Programs that are compiled in one process and run in another: by XLA ahead of time where no GPU is seen, for what jax says of this one, and
by jax.experimental.serialize_executable with it. Values and gradients beside float64, of shapes that no manifest lists.
"""

import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = os.environ.get("KB_BUNDLE", str(ROOT / "build/kernels.kb"))
SHAPES = {"x": (3, 150, 384), "w": (384, 384), "gamma": (384,)}
HEADS = 6


def block(norm, dense, attention, x, w, gamma):
    """The sum of squares of a norm, a product and an attention of x by itself, one behind the other."""
    y = dense(norm(x, gamma), w)
    q = y.reshape(*y.shape[:2], HEADS, -1)
    return (attention(q, q, q).astype(w.dtype) ** 2).sum()


def with_gradients():
    """(x, w, gamma) -> (value, gradients), of kbundle's ops."""
    import jax
    import kbundle
    import kbundle.jax as kbj
    kbundle.use(BUNDLE)

    def loss(x, w, gamma):
        return block(kbj.rms_norm, kbj.dense, lambda q, k, v: kbj.dot_product_attention(q, k, v, is_causal=True), x, w, gamma)
    return jax.jit(jax.value_and_grad(loss, (0, 1, 2)))


def wanted(arrays):
    """The same by formulas, in float64 on the CPU."""
    import jax
    import jax.numpy as jnp

    def norm(x, gamma):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gamma

    def attention(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        arrays = [jnp.asarray(a, jnp.float64) for a in arrays]
        return jax.value_and_grad(lambda *a: block(norm, jnp.matmul, attention, *a), (0, 1, 2))(*arrays)


def compile_for(device, program):
    """Writes the compiled program."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import serialize_executable
    sharding = jax.sharding.SingleDeviceSharding(device)
    shapes = [jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding) for shape in SHAPES.values()]
    made = serialize_executable.serialize(with_gradients().lower(*shapes).compile())
    pathlib.Path(program).write_bytes(pickle.dumps(made))


def compile_without_a_device(config, program):
    """In a process of its own, which sees no GPU."""
    import jax
    from jax.experimental import topologies
    assert all(device.platform == "cpu" for device in jax.devices()), jax.devices()
    topology = topologies.get_topology_desc(platform="cuda", target_config=pathlib.Path(config).read_text(), topology="1x1x1")
    compile_for(topology.devices[0], program)


def compile_with_a_device(config, program):
    import jax
    compile_for(jax.devices()[0], program)


def run(config, program):
    """Loads what another process compiled and prints the largest error, by the largest value, of each result."""
    import jax
    import jax.numpy as jnp
    import kbundle
    import kbundle.jax  # noqa: F401  its handlers
    import numpy as np
    from jax.experimental import serialize_executable
    kbundle.use(BUNDLE)
    rng = np.random.default_rng(int(os.environ.get("KB_SEED", "3")))
    arrays = [rng.standard_normal(shape).astype(jnp.bfloat16) * jnp.bfloat16(0.05 if name == "w" else 1) for name, shape in SHAPES.items()]
    loaded = serialize_executable.deserialize_and_load(*pickle.loads(pathlib.Path(program).read_bytes()))
    for turn in range(2):
        value, gradients = loaded(*jax.device_put(arrays))
        right, right_gradients = wanted(arrays)
        pairs = [(value, right), *zip(gradients, right_gradients)]
        print("ERRORS", *[float(np.abs(np.asarray(a, np.float64) - b).max() / np.abs(b).max()) for a, b in pairs])


def other(report, role, *arguments, **environment):
    """Runs a role of this file in a process of its own; its output, or None where it failed."""
    ran = subprocess.run([sys.executable, __file__, role, *arguments], env={**os.environ, **environment}, capture_output=True, text=True)
    return ran.stdout if report.hold(f"{role} ends well", ran.returncode == 0, (ran.stderr or ran.stdout)[-1500:]) else None


def check(report, role, folder, **environment):
    config, program = str(folder / "target_config"), str(folder / role)
    if other(report, role, config, program, **environment) is None:
        return
    ran = other(report, "run", config, program)
    for line in (ran or "").splitlines():
        if line.startswith("ERRORS"):
            report.bar(f"{role}, run elsewhere: largest relative error", max(map(float, line.split()[1:])), 5e-2)


def main():
    report = Report("Programs compiled in one process and run in another")
    import jax
    from jaxlib import xla_client
    report.fact("jax", jax.__version__)
    report.hold("jax finds a GPU", jax.devices()[0].platform == "gpu")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "target_config").write_text(str(xla_client.get_topology_for_devices(jax.devices()[:1]).target_config))
        check(report, "compile_with_a_device", folder)
        check(report, "compile_without_a_device", folder, JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="")
    report.finish()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {one.__name__: one for one in (compile_with_a_device, compile_without_a_device, run)}[sys.argv[1]](*sys.argv[2:])
    else:
        main()
