import triton
import triton.language as tl


@triton.jit
def mean_and_rsigma(value, mask, count, epsilon):
    mean = tl.sum(value) / count
    apart = tl.where(mask, value - mean, 0.0)
    return mean, 1.0 / tl.sqrt_rn(tl.sum(apart * apart) / count + epsilon)
