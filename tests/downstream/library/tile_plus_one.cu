// Adds one, by way of the tensor copy engine: one 64 x 256 tile a block, two blocks a cluster.
//
// It does its work only when it was launched as the manifest says: in clusters of two, with the
// dynamic shared memory asked for. Launched otherwise it writes nothing, which a test notices.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

constexpr unsigned kTileBytes = 64 * 256 * 4;

__device__ unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ bool LaunchedAsDeclared() {
  unsigned blocks, shared_bytes;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(shared_bytes));
  return blocks == 2 && shared_bytes >= kTileBytes + 256;
}

__device__ void WaitForPhaseZero(unsigned barrier) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier)
        : "memory");
  }
}

__global__ void __launch_bounds__(128)
    tile_plus_one(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to) {
  extern __shared__ unsigned char raw[];
  __shared__ alignas(8) unsigned long long barrier_storage;
  if (!LaunchedAsDeclared()) return;
  unsigned char* const aligned = raw + (128 - SharedAddress(raw) % 128) % 128;
  const unsigned tile = SharedAddress(aligned), barrier = SharedAddress(&barrier_storage);
  const int column = blockIdx.x * 64, row = blockIdx.y * 256;

  // The step after this one may start; this one waits for all that the step before it wrote.
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(kTileBytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3}], [%4];" ::"r"(tile),
        "l"(&from), "r"(column), "r"(row), "r"(barrier)
        : "memory");
  }
  __syncthreads();
  WaitForPhaseZero(barrier);
  float* const values = reinterpret_cast<float*>(aligned);
  for (int i = threadIdx.x; i < 64 * 256; i += blockDim.x) values[i] += 1.0f;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to),
        "r"(column), "r"(row), "r"(tile)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
