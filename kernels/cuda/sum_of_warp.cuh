// Sum over the 32 lanes of a warp; all of them take part, and have it.
__device__ __forceinline__ double sum_of_warp(double v) {
#pragma unroll
  for (int half = 16; half; half >>= 1) v += __shfl_xor_sync(0xffffffffu, v, half);
  return v;
}
