"""Attention and matrix products inside graphs: what graphs.py runs of them, each in a fresh process."""

import copy
import ctypes
import threading

import numpy as np

import launch_cost
import listed
from conformance import attention, capi, compare, devices, runner

ROOT = capi.ROOT
BUNDLE = ROOT / "build/kernels.kb"
THREADS, STREAMS, LAUNCHES = 4, 4, 12
HEADS, PRODUCT = (8, 512, 16, 64), (2048, 1024)  # of listed problems that are small

# title: (op, dims of the first operand, attributes, of the variants that are legal the first of these)
CALLS = {
    "attention forward, cuDNN": ("attention.sdpa_forward", HEADS, {}, "/cudnn["),
    "attention backward, cuDNN": ("attention.sdpa_backward", HEADS, {}, "/cudnn["),
    "attention forward, our kernel": ("attention.sdpa_forward", HEADS, {}, "/flash["),
    "attention backward, our kernels": ("attention.sdpa_backward", HEADS, {}, "/flash["),
    "matmul + bias + gelu, cuBLASLt": ("matmul.matmul", PRODUCT, {"epilogue": "gelu", "with_aux": True}, "/cublaslt["),
    "matmul with gelu's gradient, cuBLASLt": ("matmul.matmul", PRODUCT, {"epilogue": "dgelu", "bias_gradient": "d"}, "/cublaslt["),
}


class Ready:
    """One call on buffers at two places: nothing was launched yet, and its plan is made by plan_now()."""

    def __init__(self, conformance, title):
        self.conformance, self.device, self.title = conformance, conformance.device, title
        op, dims, attributes, self.variant = CALLS[title]
        self.op = next(o for o in conformance.ops() if o["name"] == op)
        self.problem, operands, given = next(
            p for p in listed.problems(conformance.bundle, op)
            if p[1][0][1] == dims and p[1][0][0] in ("bf16", "f16") and not p[2].get("dropout")
            and all(p[2].get(k) == v for k, v in attributes.items()))
        self.case = listed.CASES[op.split(".")[0]](conformance, self.problem, operands, given)
        self.inferred = conformance.bundle.infer(self.problem, self.device.kind)["results"]
        self.places = [self.results() for _ in range(2)]

    def results(self):
        return [devices.Buffer(self.device, r["dtype"], r["dims"]).poison() if r["present"] else None for r in self.inferred]

    def plan_now(self):
        bundle = self.conformance.bundle
        bundle.clear_policy()
        legal = [one for one in bundle.legal(self.problem, self.device.kind) if self.variant in one]
        assert legal, f"no variant {self.variant} is legal for {self.problem}"
        refused = []
        for variant in legal:  # of the algorithms that are legal, cuBLASLt may refuse some for this problem
            bundle.force(variant)
            try:
                self.plan = capi.Plan(bundle, self.problem, self.device.kind, alignment=16)
                break
            except capi.KbError as error:
                refused.append(str(error))
        bundle.clear_policy()
        assert len(refused) < len(legal), refused[0]
        self.workspace = self.device.allocate(max(256, self.plan.workspace_bytes))
        self.device.synchronize()

    def launch(self, place=0, results=None, workspace=None, stream=None):
        at = lambda buffers: [b and b.address for b in buffers]
        self.plan.launch(at(self.case.operands.places[place]), at(results or self.places[place]), workspace or self.workspace,
                         stream or self.device.stream, self.device.threads)

    def arrays(self, results):
        return [b and b.get() for b in results]

    def check(self, place):
        """Judges what is at a place, and poisons it."""
        found = self.arrays(self.places[place])
        wrong = list(self.case.judge(self.op, listed.Found([found])))
        assert not wrong, f"{self.title}: {wrong[0]}"
        for buffer in filter(None, self.places[place]):
            buffer.poison()
        self.device.synchronize()
        return found

    def same(self, first, second):
        assert not self.conformance.differ(self.op, self.problem, first, second), f"{self.title}: other bits"


def opened():
    cuda = devices.Cuda()
    launch_cost.frameworks_libraries()
    return runner.Conformance(BUNDLE, cuda, [ROOT / "kernels"])


def ready(title):
    return Ready(opened(), title)


def each():
    """Every call, ready, over one bundle."""
    conformance = opened()
    for title in CALLS:
        yield Ready(conformance, title)


def replayed():
    """The first launch is in a capture straight after the plan; the graph is replayed, and then moved to other buffers."""
    for call in each():
        cuda, made_anew = call.device, False
        call.plan_now()
        graph = cuda.capture(call.launch)
        results = []
        for _ in range(2):
            cuda.launch_graph(graph)
            cuda.synchronize()
            results.append(call.check(0))
        if not cuda.update_graph(graph, lambda: call.launch(1)):
            made_anew, graph = True, cuda.capture(lambda: call.launch(1))
        cuda.launch_graph(graph)
        cuda.synchronize()
        results.append(call.check(1))
        for other in results[1:]:
            call.same(results[0], other)
        print(f"{call.title}: moved by {'a new graph' if made_anew else 'an update of the graph'}", flush=True)


def on_stream(cuda):
    """The device with another stream."""
    other = copy.copy(cuda)
    other.stream = ctypes.c_void_p()
    cuda.call("cuStreamCreate", ctypes.byref(other.stream), 1)
    return other


def at_once():
    """4 threads with 4 streams each on the same plans; every second stream replays a graph."""
    calls = list(each())
    cuda, expected, failures = calls[0].device, {}, []
    for call in calls:
        call.plan_now()
        call.launch()
        cuda.synchronize()
        expected[call.title] = call.check(0)

    def work(call, mine):
        try:
            cuda.call("cuCtxSetCurrent", cuda.context)
            enqueue = []
            for number, (device, results, workspace) in enumerate(mine):
                launch = lambda d=device, r=results, w=workspace: call.launch(0, r, w, d.stream)
                graph = device.capture(launch) if number % 2 else None
                enqueue.append((lambda d=device, g=graph: d.launch_graph(g)) if graph else launch)
            for _ in range(LAUNCHES):
                for one in enqueue:
                    one()
        except Exception as error:
            failures.append(f"{call.title}: {type(error).__name__}: {error}")

    for call in calls:
        places = [[(on_stream(cuda), call.results(), cuda.allocate(max(256, call.plan.workspace_bytes))) for _ in range(STREAMS)]
                  for _ in range(THREADS)]
        threads = [threading.Thread(target=work, args=(call, mine)) for mine in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cuda.synchronize()
        assert not failures, failures[0]
        for _, results, workspace in [one for mine in places for one in mine]:
            found = call.arrays(results)
            call.same(expected[call.title], found)
            close_to(call.title, found, expected[call.title])
            cuda.free(workspace)
            for buffer in filter(None, results):
                assert buffer.guards_whole(), f"{call.title}: wrote outside a buffer"
                buffer.free()


def close_to(title, found, expected):
    for a, b in zip(found, expected):
        if a is not None and a.dtype != np.uint8:
            a, b = a.astype(np.float64), b.astype(np.float64)
            error = np.abs(a - b).max() / np.abs(b).max()
            assert error <= 2e-2, f"{title}: differs by {error:.3g}"


def dropout_state_written():
    """One graph of a forward op with dropout, replayed with the state written between replays."""
    conformance = opened()
    cuda, op = conformance.device, next(o for o in conformance.ops() if o["name"] == "attention.sdpa_forward")
    reference = conformance.reference(op)
    shapes, attributes = attention.problem_of((130, 140), (128, 128), (4, 2), "bshd", ("causal", -1), (), None, 0.3)
    made = reference.make_inputs("sdpa_forward", shapes | attributes, 0)
    names = [o["name"] for o in op["operands"]]
    dtype = lambda name: "u32" if name == "dropout_state" else "bf16"
    arrays = [made[n].astype(devices.NUMPY[dtype(n)]) if n in shapes else None for n in names]
    problem = capi.Problem(op["name"], [(dtype(n), shapes[n]) if n in shapes else None for n in names], attributes | {"with_stats": True})
    plan = capi.Plan(conformance.bundle, problem, cuda.kind, alignment=16)
    launch = runner.Launch(cuda, op, problem, conformance.bundle.infer(problem, cuda.kind), arrays, 0)
    launch.fill()
    workspace = cuda.allocate(max(256, plan.workspace_bytes))
    cuda.synchronize()
    graph = cuda.capture(lambda: plan.launch(*launch.addresses(), workspace, cuda.stream, cuda.threads))
    place, seen = names.index("dropout_state"), []
    for state in ([1, 2, 3, 4], [1, 2, 4, 4], [1, 2, 3, 4], [0xffffffff, 5, 0xffffffff, 0]):
        launch.operands[place].put(np.array(state, np.uint32))
        for buffer in filter(None, launch.results):
            buffer.poison()
        cuda.synchronize()
        cuda.launch_graph(graph)
        cuda.synchronize()
        arrays[place] = np.array(state, np.uint32)
        seen.append(launch.read()[0])
        wanted = runner.wanted_results(reference, op, problem, arrays)[0]
        ratio, sentence = compare.worst(seen[-1].reshape(-1), wanted.reshape(-1), **runner.tolerance_of(op, 0, "bf16"))
        assert ratio <= 1, f"state {state}: {ratio:.3g} times the tolerance, {sentence}"
    assert seen[0].tobytes() == seen[2].tobytes(), "the same state gave other bits"
    assert seen[0].tobytes() != seen[1].tobytes(), "another offset dropped the same elements"


def xla():
    """Attention and a layer with their gradients in one program under XLA, over buffers that move."""
    import jax
    import jax.numpy as jnp
    import kbundle
    import kbundle.jax as kbj
    from peers import relative_error
    kbundle.use(str(BUNDLE))

    def program(attend, layer, dtype):
        def loss(q, k, v, x, w, bias):
            o, y = attend(q, k, v), layer(x, w, bias)
            return 32 * (o.astype(jnp.float32) ** 2).sum() + (y.astype(jnp.float32) ** 2).sum() / 1024, (o, y)
        step = jax.value_and_grad(loss, argnums=tuple(range(6)), has_aux=True)
        return jax.jit(lambda *arrays: step(*(a.astype(dtype) for a in arrays)))

    def plain_layer(x, w, bias):
        return jax.nn.gelu(jnp.matmul(x, w, precision="highest") + bias)

    def plain_attention(q, k, v):
        score = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest") / np.sqrt(q.shape[-1])
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(score), v, precision="highest")

    ours = program(lambda q, k, v: kbj.dot_product_attention(q, k, v), lambda x, w, b: kbj.dense(x, w, b, "gelu"), jnp.float16)
    plain = program(plain_attention, plain_layer, jnp.float32)
    dims, kept = [HEADS] * 3 + [PRODUCT, (PRODUCT[1], 3072), (3072,)], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        arrays = [jnp.asarray(rng.standard_normal(d, np.float32) / (32 if d == dims[4] else 1), jnp.float16) for d in dims]
        found, wanted = ours(*arrays), plain(*arrays)
        kept += [arrays, found, jnp.ones((seed + 1, 1000))]  # so that the next call's buffers are elsewhere
        for number, (a, b) in enumerate(zip(jax.tree.leaves(found), jax.tree.leaves(wanted))):
            error = relative_error(a, b)
            assert error < 1e-2, f"round {seed}, array {number}: off by {error:.3g}"
