// The random numbers of philox.cuh, one result a thread.
#include "philox.cuh"

extern "C" __global__ void blocks_of_philox(const unsigned* in, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned* c = in + 6 * i;
  Philox r = philox4x32(c[0], c[1], c[2], c[3], c[4], c[5]);
  out[4 * i] = r.x;
  out[4 * i + 1] = r.y;
  out[4 * i + 2] = r.z;
  out[4 * i + 3] = r.w;
}

extern "C" __global__ void units(const unsigned* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = unit_float(in[i]);
}

extern "C" __global__ void hashes(const unsigned* in, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = hash32(in[i]);
}
