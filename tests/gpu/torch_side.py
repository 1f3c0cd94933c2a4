"""Torch's attention on the data of others, timed by its own events: captured in a CUDA graph, or eagerly behind a kernel that
keeps the GPU busy until all is enqueued.
"""

import contextlib

import ml_dtypes
import numpy as np

from peers import BURST_SECONDS


def tensor(array):
    """A copy on the GPU of a NumPy array, bfloat16 among them; None for None."""
    import torch
    if array is None:
        return None
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def elapsed_us(enqueue):
    import torch
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    enqueue()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


class Captured:
    """function(i) for `calls` numbers of sets by turns, in one graph."""

    def __init__(self, function, set_count, calls):
        import torch
        self.calls, side = calls, torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                function(0)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.kept = [function(i % set_count) for i in range(calls)]
        self.graph.replay()
        us = elapsed_us(self.graph.replay)
        self.repeats = max(3, int(BURST_SECONDS * 1e6 / us))

    def burst(self):
        return elapsed_us(lambda: [self.graph.replay() for _ in range(self.repeats)]) / self.repeats / self.calls


class Eager:
    def __init__(self, function, set_count, calls):
        self.function, self.set_count, self.calls = function, set_count, calls
        for _ in range(3):
            self.burst()

    def burst(self):
        import torch
        torch.cuda._sleep(4_000_000)  # cycles, about 2 ms
        return elapsed_us(lambda: [self.function(i % self.set_count) for i in range(self.calls)]) / self.calls


class CudnnAttention:
    """torch's scaled_dot_product_attention by cuDNN. sets: (q, k, v, bias, dout) as NumPy arrays, heads first if `heads_first`."""

    def __init__(self, sets, heads_first, causal, scale):
        self.causal, self.scale = causal, scale
        view = lambda x: x if x is None or heads_first else x.transpose(1, 2)
        self.sets = [[view(tensor(q)), view(tensor(k)), view(tensor(v)), tensor(bias), view(tensor(dout))] for q, k, v, bias, dout in sets]
        self.leaves = [[x.detach().requires_grad_() for x in given[:3]] for given in self.sets]

    def attention(self, q, k, v, bias):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=self.causal, scale=self.scale,
                                                                    enable_gqa=q.shape[1] != k.shape[1])

    def forward(self, number):
        import torch
        with torch.no_grad():
            return self.attention(*self.sets[number][:4])

    def both(self, number):
        import torch
        bias, dout = self.sets[number][3:]
        o = self.attention(*self.leaves[number], bias)
        return torch.autograd.grad(o, self.leaves[number], dout)


class FlexSoftcap:
    """flex_attention, compiled, with a cap on the scores. q, k, v, dout: NumPy arrays, heads first."""

    def __init__(self, q, k, v, dout, scale, cap):
        import torch
        from torch.nn.attention.flex_attention import flex_attention
        self.arrays, self.dout = [tensor(x) for x in (q, k, v)], tensor(dout)
        self.leaves = [x.detach().requires_grad_() for x in self.arrays]
        compiled = torch.compile(flex_attention, dynamic=False)

        def capped(s, b, h, i, j):  # one function: each other one would be compiled again
            return cap * torch.tanh(s / cap)

        self.run = lambda *x: compiled(*x, score_mod=capped, scale=scale)
        self.saved = None

    def forward(self, _):
        import torch
        with torch.no_grad():
            return self.run(*self.arrays)

    def backward(self, _):
        import torch
        if self.saved is None:
            self.saved = self.run(*self.leaves)
        return torch.autograd.grad(self.saved, self.leaves, self.dout, retain_graph=True)


@contextlib.contextmanager
def released():
    """Gives torch's cached memory back behind a case."""
    try:
        yield
    finally:
        import gc
        import torch
        gc.collect()
        torch.cuda.empty_cache()
