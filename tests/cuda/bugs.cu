// Kernels with one mistake each, and some that only look like it.
#define FULL 0xffffffffu
extern "C" __global__ void shfl_in_branch(int* o) {  // 16 lanes never arrive
  int l = threadIdx.x, v = l;
  if (l < 16)
    v = __shfl_xor_sync(FULL, v, 1);
  else
    __syncthreads();
  o[l] = v;
}
extern "C" __global__ void shfl_after_return(int* o) {  // lanes >= 20 exit; lane 19 reads lane 23
  int l = threadIdx.x;
  if (l >= 20) return;
  o[l] = __shfl_down_sync(FULL, l, 4);
}
extern "C" __global__ void not_in_mask(int* o) {
  o[threadIdx.x] = __shfl_sync(0x0000ffffu, (int)threadIdx.x, 0);
}
extern "C" __global__ void different_masks(int* o) {
  unsigned m = threadIdx.x == 3 ? 0x7fffffffu : FULL;
  o[threadIdx.x] = __any_sync(m, 1);
}
extern "C" __global__ void barrier_in_branch(int* o) {
  if (threadIdx.x < 40)
    __syncthreads();
  else {
    o[threadIdx.x] = 1;
    __syncthreads();
  }
}
extern "C" __global__ void barrier_in_loop(int* o, int n) {  // odd lanes once more than even ones
  for (int i = 0; i < (int)threadIdx.x % 2 + n; ++i) __syncthreads();
  o[threadIdx.x] = __ballot_sync(FULL, threadIdx.x & 1);
}
extern "C" __global__ void barrier_after_exit(int* o) {  // allowed since Volta
  if (threadIdx.x >= 40) return;
  __syncthreads();
  o[threadIdx.x] = 1;
}
extern "C" __global__ void uninit_shared(float* o) {
  __shared__ float s[32];
  if (threadIdx.x == 0) s[0] = 1.f;
  __syncthreads();
  o[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void dyn_overrun(float* o) {
  extern __shared__ unsigned char smem[];
  float* f = (float*)smem;
  f[threadIdx.x] = 1.f;
  o[threadIdx.x] = f[threadIdx.x];
}
extern "C" __global__ void missing_syncwarp(int* o) {  // reads another lane's shared slot without a barrier
  __shared__ int s[32];
  int l = threadIdx.x;
  s[l] = l;
  o[l] = s[31 - l];
}
extern "C" __global__ void shfl_is_no_fence(int* o) {  // a shuffle orders lanes but not memory
  __shared__ int s[32];
  int l = threadIdx.x;
  s[l] = l;
  int x = __shfl_sync(FULL, l, 0);
  o[l] = s[31 - l] + x;
}
extern "C" __global__ void with_syncwarp(int* o) {
  __shared__ int s[32];
  int l = threadIdx.x;
  s[l] = l;
  __syncwarp();
  o[l] = s[31 - l];
}
extern "C" __global__ void missing_syncthreads(int* o) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncwarp();
  o[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void race_add(int* o) { o[0] += 1; }  // lost updates on a GPU
extern "C" __global__ void atomic_ok(int* o) { atomicAdd(o, 1); }
extern "C" __global__ void block_order(int* o) {
  if (threadIdx.x == 0) o[0] = blockIdx.x;
}  // last writer wins
extern "C" __global__ void spin_forever(int* flag) {
  while (atomicAdd(flag, 0) == 0) __nanosleep(10);
}
extern "C" __global__ void spin_lock(int* lock, int* o) {  // fine with independent thread scheduling
  bool done = false;
  while (!done)
    if (atomicCAS(lock, 0, 1) == 0) {
      o[0] += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
}
extern "C" __global__ void opportunistic(int* o) {  // aggregated atomic with __activemask
  int l = threadIdx.x & 31;
  if (threadIdx.x % 3 == 0) {
    unsigned m = __activemask();
    int leader = __ffs(m) - 1, old = 0;
    if (l == leader) old = atomicAdd(o, __popc(m));
    old = __shfl_sync(m, old, leader);
    o[1 + old + __popc(m & ((1u << l) - 1))] = threadIdx.x;
  }
}
extern "C" __global__ void two_halves(int* o) {  // different groups in different branches, same time
  int l = threadIdx.x;
  if (l < 16)
    o[l] = __reduce_add_sync(0x0000ffffu, l);
  else
    o[l] = __shfl_xor_sync(0xffff0000u, l, 3, 16);
}
extern "C" __global__ void out_of_bounds(int* o, int n) { o[(int)threadIdx.x + n] = 1; }
extern "C" __global__ void asserts(int* o) {
  assert(threadIdx.x < 5);
  o[threadIdx.x] = 1;
}
