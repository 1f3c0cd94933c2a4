"""Attention of few queries on many keys, dense and in pages, at shapes of 64 MB of keys and values and more: against float64, and timed
beside what the loader chooses today and jax.nn on cuDNN, in one run on the same data.

What counts is the speed at which keys and values are read. An H200 reads 4.2 TB/s in section bandwidth. Sections
conformance_flash_forward and conformance_paged have the odd cases.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import attention
import kbundle
import kbundle.jax as kbj
import launch_cost
import peers
from conformance import capi, devices
from report import Report

BUNDLE = attention.BUNDLE
DENSE, PAGED = "attention.sdpa_forward", "attention.paged_attention"
BYTES_PER_US, LEAST, PAGED_MOST, SETS, CALLS, WITHIN = 4.2e6, 0.8, 1.1, 2, 8, 2e-2
#         batch, queries, heads, key heads, columns, keys; lengths: whole, or drawn between 1 and there, most of them short
SHAPES = [(16, 1, 32, 8, 128, 4096, False), (64, 1, 32, 8, 128, 1024, False), (4, 1, 32, 8, 128, 32768, False),
          (4, 1, 32, 8, 128, 4096, False), (1, 1, 32, 8, 128, 131072, False), (128, 1, 32, 8, 128, 512, False),
          (256, 1, 64, 8, 128, 256, False), (32, 1, 8, 1, 128, 8192, False), (4, 1, 32, 32, 128, 8192, False),
          (32, 1, 32, 8, 64, 4096, False), (8, 1, 16, 4, 256, 4096, False), (16, 4, 32, 8, 128, 4096, False),
          (16, 16, 32, 8, 128, 4096, False), (32, 1, 40, 8, 128, 2000, False), (64, 1, 32, 8, 128, 8192, True)]
PAGES = [1, 16, 64, 128]


class Data:
    """Sets of random keys and values, one q, and lengths where there are any."""

    def __init__(self, shape):
        batch, queries, heads, kv_heads, columns, keys, drawn = shape
        random = lambda i, *dims: jax.random.normal(jax.random.key(i), dims, jnp.bfloat16)
        self.q = random(0, batch, queries, heads, columns)
        self.sets = [[random(2 * i + j + 1, batch, keys, kv_heads, columns) for j in range(2)] for i in range(SETS)]
        lengths = np.maximum(1, keys * np.random.default_rng(5).random(batch) ** 4).astype(np.int32)
        self.lengths = jnp.asarray(lengths) if drawn else None
        self.bytes = int(lengths.sum() if drawn else batch * keys) * kv_heads * columns * 4
        self.scale = columns ** -0.5
        jax.block_until_ready((self.q, self.sets))

    def dense(self):
        q_lengths = None if self.lengths is None else jnp.full(len(self.q), self.q.shape[1], jnp.int32)
        return [[self.q, k, v, None, q_lengths, self.lengths, None, None, None] for k, v in self.sets]

    def paged(self, slots):
        batch, keys, *rest = self.sets[0][0].shape
        table = jax.random.permutation(jax.random.key(9), batch * keys // slots).astype(jnp.int32).reshape(batch, -1)
        lengths = jnp.full(batch, keys, jnp.int32) if self.lengths is None else self.lengths
        pool = lambda x: x.reshape(-1, slots, *rest)
        return [[self.q, pool(k), pool(v), lengths, table, None, None, None, None] for k, v in self.sets]

    def wanted(self, operands, b, kv, table=None):
        """The rows of a sequence and a key head in float64."""
        q, k, v = (np.asarray(x.astype(jnp.float32), np.float64) for x in
                   (self.q[b], *((x[b] if table is None else x[table[b]].reshape(-1, *x.shape[2:]))[:, kv] for x in operands[1:3])))
        group = q.shape[1] // self.sets[0][0].shape[2]
        length = len(k) if self.lengths is None else int(self.lengths[b])
        s = self.scale * np.einsum("qhd,kd->qhk", q[:, kv * group:(kv + 1) * group], k[:length])
        p = np.exp(s - s.max(-1, keepdims=True))
        return slice(kv * group, (kv + 1) * group), np.einsum("qhk,kd->qhd", p / p.sum(-1, keepdims=True), v[:length])


class Side:
    """One variant on the sets of one op, by a part of its id: the first point that is legal."""

    def __init__(self, cuda, bundle, op, sets, scale, variant):
        jax.block_until_ready(sets)  # launches are on a stream of their own
        name_of = {t: n for n, t in devices.NUMPY.items()}
        described = [None if x is None else (name_of[x.dtype.type], x.shape) for x in sets[0]]
        problem = capi.Problem(op, described, {"scale": scale})
        bundle.clear_policy()
        legal = bundle.legal(problem, capi.CUDA)
        self.chosen = next((v for v in legal if variant is None or f"/{variant}" in v), None)
        if self.chosen is None:
            raise LookupError(f"{op} has no {variant or 'variant'} for {described[:2]}")
        bundle.force(self.chosen)
        self.plan = capi.Plan(bundle, problem, capi.CUDA)
        bundle.clear_policy()
        self.o = devices.Buffer(cuda, "bf16", sets[0][0].shape).poison()
        self.space = cuda.allocate(max(256, self.plan.workspace_bytes))
        self.cuda, self.sets = cuda, sets
        pointers = lambda arrays: capi.Plan.pointers([None if x is None else x.unsafe_buffer_pointer() for x in arrays])
        self.operands = [pointers(arrays) for arrays in sets]
        self.results = capi.Plan.pointers([self.o.address, None])

    def launch(self, i):
        self.plan.launch(self.operands[i], self.results, self.space, self.cuda.stream)

    def error(self, data, table=None):
        self.launch(0)
        self.cuda.synchronize()
        found, worst = self.o.get().astype(np.float64), 0.0
        for b, kv in {(0, 0), (len(found) - 1, data.sets[0][0].shape[2] - 1)}:
            heads, wanted = data.wanted(self.sets[0], b, kv, table)
            worst = max(worst, float(np.abs(found[b, :, heads] - wanted).max() / np.abs(wanted).max()))
        return worst if np.isfinite(found).all() else np.inf

    def free(self):
        self.o.free()
        self.cuda.free(self.space)


def by_jax(q, k, v, _bias, q_lengths, kv_lengths, *_):
    return jax.nn.dot_product_attention(q, k, v, implementation="cudnn", query_seq_lengths=q_lengths, key_value_seq_lengths=kv_lengths)


def measured(report, cuda, bundle, shape, refused):
    """A row of the table: microseconds of what is chosen today, of decode, of its pages, and of jax.nn."""
    data, label = Data(shape), "{}x{}, {} on {}, {}, {} keys".format(*shape) + (", drawn" if shape[-1] else "")
    made = {"chosen": Side(cuda, bundle, DENSE, data.dense(), data.scale, None),
            "decode": Side(cuda, bundle, DENSE, data.dense(), data.scale, "decode")}
    report.bar(f"{label}: error of decode", made["decode"].error(data), WITHIN)
    for slots in PAGES if shape[5] % 128 == 0 and shape[4] == 128 and shape[1] == 1 else []:
        sets = data.paged(slots)
        made[slots] = Side(cuda, bundle, PAGED, sets, data.scale, "decode")
        report.bar(f"{label}: error of pages of {slots}", made[slots].error(data, np.asarray(sets[0][4])), WITHIN)
    sides = [peers.GraphSide(cuda, side.launch, SETS, CALLS) for side in made.values()]
    sides.append(peers.attempt(f"{label}: jax.nn", lambda: peers.JaxSide(by_jax, data.dense(), CALLS), refused))
    us = dict(zip([*made, "jax"], peers.by_turns(sides)))
    floor = data.bytes / BYTES_PER_US
    report.bar(f"{label}: share of 4.2 TB/s", floor / us["decode"], LEAST, at_least=True)
    if us["jax"]:
        report.bar(f"{label}: time by jax.nn's", us["decode"] / us["jax"], 1.0)
    for slots in [s for s in PAGES if s in us]:
        report.bar(f"{label}: pages of {slots}, time by the dense one's", us[slots] / us["decode"], PAGED_MOST)
    chosen = made["chosen"].chosen.split("/")[1].split("[")[0]
    for side in made.values():
        side.free()
    return [label, f"{floor:.0f}", peers.number(us["jax"]), f"{us['chosen']:.1f} {chosen}", f"{us['decode']:.1f}",
            *(peers.number(us.get(s)) for s in PAGES)]


def right_behind(report):
    """Decode begins while the kernel in front of it ends, and that one may have written any operand: layers of a cache of keys, norms
    and lengths made a moment ago, give in one program the bits that each call gives alone. Layers have different keys, so that what
    an earlier one left in the same memory would show. Small norms are calls here, not formulas, in the program too."""
    kbundle.allow_formulas(False)
    random = lambda i, *dims: jax.random.normal(jax.random.key(i), dims, jnp.bfloat16)
    x, gamma = random(0, 32, 1, 32, 128), random(1, 128)
    cache = [(random(2 * i + 2, 32, 1000, 8, 128), random(2 * i + 3, 32, 1000, 8, 128)) for i in range(6)]
    lengths = jnp.asarray(np.random.default_rng(0).integers(1, 980, 32), jnp.int32)

    def layer(x, k, v, lengths, done):
        q, k, v = (done(kbj.rms_norm(a, gamma)) for a in (x, k, v))
        return done(done(kbj.dot_product_attention(q, k, v)) + done(kbj.dot_product_attention(q, k, v, key_value_seq_lengths=lengths)))

    def model(x, done=lambda made: made):
        for i, (k, v) in enumerate(cache):
            x = layer(x, k, v, done(lengths + i), done)
        return x

    apart, together = model(x, jax.block_until_ready), jax.jit(model)
    report.hold("operands written just in front", all(bool((together(x) == apart).all()) for _ in range(20)), "other bits than each call alone")
    kbundle.allow_formulas(True)


def main():
    report, refused, rows = Report("decode"), {}, []

    def run():
        launch_cost.frameworks_libraries()
        jax.block_until_ready(jnp.zeros(1))
        cuda = devices.Cuda()
        bundle = capi.Bundle(BUNDLE)
        right_behind(report)
        for shape in SHAPES:
            rows.append(measured(report, cuda, bundle, shape, refused))
            print(*rows[-1], flush=True)

    head = ["batch x queries, heads, columns", "floor", "jax.nn", "chosen", "decode", *(f"pages of {s}" for s in PAGES)]
    peers.finish(report, run, refused, lambda: report.table("Microseconds, bf16", head, rows))


if __name__ == "__main__":
    sys.exit(main())
