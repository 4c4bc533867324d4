// Every intrinsic that the emulator has, on its own.
#define FULL 0xffffffffu
extern "C" __global__ void shuffles(const int* v, const int* arg, int width, int* o) {
  int l = threadIdx.x;
  o[l] = __shfl_sync(FULL, v[l], arg[l], width);
  o[32 + l] = __shfl_up_sync(FULL, v[l], (unsigned)arg[32 + l], width);
  o[64 + l] = __shfl_down_sync(FULL, v[l], (unsigned)arg[32 + l], width);
  o[96 + l] = __shfl_xor_sync(FULL, v[l], arg[64], width);
}
extern "C" __global__ void votes(const int* v, unsigned* o, int* s) {
  int l = threadIdx.x;
  unsigned half = l < 16 ? 0xffffu : 0xffff0000u;
  o[l] = __ballot_sync(FULL, v[l] & 1);
  o[32 + l] = __ballot_sync(half, v[l] & 1);
  o[64 + l] = __any_sync(half, v[l] > 6) + 2 * __all_sync(half, v[l] >= 0);
  o[96 + l] = __match_any_sync(half, v[l]);
  int p;
  o[128 + l] = __match_all_sync(half, v[l] >= 0 ? 1 : 0, &p);
  o[160 + l] = p;
  s[l] = __reduce_add_sync(half, v[l]);
  s[32 + l] = __reduce_min_sync(half, v[l] - 4);
  s[64 + l] = __reduce_max_sync(half, v[l] - 4);
  s[96 + l] = (int)__reduce_xor_sync(half, (unsigned)v[l]);
  s[128 + l] = __syncthreads_count(v[l] & 1);
  s[160 + l] = __syncthreads_or(v[l] > 6) + 2 * __syncthreads_and(v[l] >= 0);
  long long big = ((long long)v[l] << 33) + l;
  s[192 + l] = (int)(__shfl_sync(FULL, big, 5) >> 33);
  double d = v[l] + 0.25;
  s[224 + l] = (int)(4 * __shfl_down_sync(FULL, d, 3));
}
extern "C" __global__ void scalars(const unsigned* a, const unsigned* b, unsigned* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  o[i * 8] = __umulhi(a[i], b[i]);
  o[i * 8 + 1] = __popc(a[i]);
  o[i * 8 + 2] = __clz((int)a[i]);
  o[i * 8 + 3] = __ffs((int)a[i]);
  o[i * 8 + 4] = __brev(a[i]);
  o[i * 8 + 5] = __funnelshift_l(a[i], b[i], a[i] & 31);
  o[i * 8 + 6] = min(a[i], b[i]);
  o[i * 8 + 7] = (unsigned)(__umul64hi((unsigned long long)a[i] << 32, (unsigned long long)b[i] << 32));
}
extern "C" __global__ void halves(const float* v, float* o) { o[threadIdx.x] = v[threadIdx.x] * 0.5f; }
extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* q, float* f, double* d) {
  int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) + blockIdx.y * 1000;
  atomicAdd(i, t);
  atomicMax(i + 1, t);
  atomicMin(i + 2, -t);
  atomicAdd(u, 1u);
  atomicInc(u + 1, 6u);
  atomicOr(u + 2, 1u << (t & 31));
  atomicAdd(q, 1ull << 33);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  atomicExch(i + 3, 7);
  atomicCAS(u + 3, 0u, 9u);
}
