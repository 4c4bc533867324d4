// Mistakes that the text of a kernel does not show on a CPU, and its compiled form does.
struct __align__(16) Four {
  float x, y, z, w;
};
extern "C" __global__ void four_at_a_time(const float* in, float* out, int first) {
  const Four v = *(const Four*)(in + first);
  out[threadIdx.x] = v.x + v.w;
}
extern "C" __global__ void through_the_cache(const float* __restrict__ in, float* __restrict__ out) {
  out[threadIdx.x] = in[31 - threadIdx.x] + 1.f;
}
extern "C" __global__ void beyond_shared(float* out, int n) {
  __shared__ float held[32];
  held[threadIdx.x + n] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = held[31 - threadIdx.x];
}
