"""A softmax in Triton with five configurations, for its first-use time. Prints seconds of the first call."""

import time

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (1, 2, 4, 8, 16)], key=["columns"])
@triton.jit
def softmax_rows(y, x, scale, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    logits = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32) * scale
    powers = tl.exp(logits - tl.max(logits, axis=0))
    tl.store(y + row * columns + at, powers / tl.sum(powers, axis=0), mask=at < columns)


def main():
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    torch.cuda.synchronize()
    start = time.perf_counter()
    softmax_rows[(4096,)](y, x, 0.125, 4096, BLOCK=4096)
    torch.cuda.synchronize()
    print("SECONDS", time.perf_counter() - start)


if __name__ == "__main__":
    main()
