// Compile the text of a CUDA kernel with a C++ compiler, and run it on the CPU.
//
// Every CUDA thread is a fiber (fibers.h), a warp is 32 of them (warps.h); here is the language: keywords,
// intrinsics, atomics. Misuse that is silent or undefined on a GPU ends the launch with a message: a lane
// outside its own mask, a shuffle from a lane that does not take part, lanes that wait for each other for
// ever, a barrier in divergent code, a write past the dynamic shared memory, a spin loop that cannot end.
// Shared memory is filled with 0xFF before each block. With a seed other than 0, lanes, warps and blocks run
// in a random order: a kernel without races gives the same output for each.
//
// Kernels have no headers but their own, no inline PTX, no cooperative groups, no textures; dynamic shared
// memory is `extern __shared__ unsigned char smem[];`. Compiled without contraction, here and for the GPU,
// + - * / and sqrt give the same bits on both.
#pragma once
#include <math.h>

#include "warps.h"

#define CUDA_ON_CPU 1

// Vectors, as CUDA lays them out.
#define EMU_VEC(T, N)                                                                              \
  struct __attribute__((aligned(2 * sizeof(T)))) N##2 { T x, y; };                                 \
  struct __attribute__((aligned(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)))) N##4 { T x, y, z, w; }; \
  inline N##2 make_##N##2(T x, T y) { return {x, y}; }                                             \
  inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VEC(int, int)
EMU_VEC(unsigned, uint)
EMU_VEC(float, float)
EMU_VEC(double, double)
EMU_VEC(short, short)
EMU_VEC(unsigned short, ushort)
EMU_VEC(unsigned char, uchar)
EMU_VEC(long long, longlong)
EMU_VEC(unsigned long long, ulonglong)

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ thread_local
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define threadIdx (emu::cur->tid)
#define blockIdx (emu::E.bid)
#define blockDim (emu::E.block)
#define gridDim (emu::E.grid)
#define warpSize 32
#define EMU_LINE int emu_line = __builtin_LINE()
#undef assert
#define assert(x) ((x) ? (void)0 : emu::fail("assertion failed, line %d: %s", __LINE__, #x))
#define __trap() emu::fail("__trap(), line %d", __LINE__)

namespace emu {
template <class T>
uint64_t bits(T v) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint64_t r = 0;
  memcpy(&r, &v, sizeof v);
  return r;
}
template <class T>
T unbits(uint64_t r) {
  T v;
  memcpy(&v, &r, sizeof v);
  return v;
}
template <class T>
T shfl(const char* name, int how, unsigned mask, T v, int a, int width, int line) {
  static_assert(std::is_arithmetic_v<T>, "a shuffle moves 4- or 8-byte numbers");
  if (width < 1 || width > 32 || (width & (width - 1)))
    fail("%s (line %d): width %d is not a power of two up to 32", name, line, width);
  return unbits<T>(collective(kShfl, (a << 2) | how, mask, bits(v), width << 8, name, line));
}
}  // namespace emu
template <class T>
auto __shfl_sync(unsigned m, T v, int src, int width = 32, EMU_LINE) {
  return emu::shfl("__shfl_sync", 0, m, +v, src & 31, width, emu_line);
}
template <class T>
auto __shfl_up_sync(unsigned m, T v, unsigned d, int width = 32, EMU_LINE) {
  return emu::shfl("__shfl_up_sync", 1, m, +v, int(d), width, emu_line);
}
template <class T>
auto __shfl_down_sync(unsigned m, T v, unsigned d, int width = 32, EMU_LINE) {
  return emu::shfl("__shfl_down_sync", 2, m, +v, int(d), width, emu_line);
}
template <class T>
auto __shfl_xor_sync(unsigned m, T v, int x, int width = 32, EMU_LINE) {
  return emu::shfl("__shfl_xor_sync", 3, m, +v, x, width, emu_line);
}
inline unsigned __ballot_sync(unsigned m, int p, EMU_LINE) {
  return unsigned(emu::collective(emu::kVote, 0, m, p != 0, 0, "__ballot_sync", emu_line));
}
inline int __any_sync(unsigned m, int p, EMU_LINE) {
  return emu::collective(emu::kVote, 1, m, p != 0, 0, "__any_sync", emu_line) != 0;
}
inline int __all_sync(unsigned m, int p, EMU_LINE) {
  return emu::collective(emu::kVote, 2, m, p == 0, 0, "__all_sync", emu_line) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned m, T v, EMU_LINE) {
  return unsigned(emu::collective(emu::kMatch, 0, m, emu::bits(v), 0, "__match_any_sync", emu_line));
}
template <class T>
unsigned __match_all_sync(unsigned m, T v, int* pred, EMU_LINE) {
  unsigned eq = unsigned(emu::collective(emu::kMatch, 1, m, emu::bits(v), 0, "__match_all_sync", emu_line));
  bool same = (eq & m) == (m & emu::cur->warp->exist);
  *pred = same;
  return same ? m : 0;
}
#define EMU_REDUCE(n, T, sub)                                                                          \
  inline T __reduce_##n##_sync(unsigned m, T v, EMU_LINE) {                                            \
    return T(emu::collective(emu::kReduce, sub, m, unsigned(v), 0, "__reduce_" #n "_sync", emu_line)); \
  }
EMU_REDUCE(add, unsigned, 0)
EMU_REDUCE(add, int, 0)
EMU_REDUCE(min, int, 1)
EMU_REDUCE(max, int, 2)
EMU_REDUCE(min, unsigned, 3)
EMU_REDUCE(max, unsigned, 4)
EMU_REDUCE(and, unsigned, 5)
EMU_REDUCE(or, unsigned, 6)
EMU_REDUCE(xor, unsigned, 7)
inline void __syncwarp(unsigned m = 0xffffffffu, EMU_LINE) {
  emu::collective(emu::kSyncWarp, 0, m, 0, 0, "__syncwarp", emu_line);
}
inline unsigned __activemask(EMU_LINE) {
  return unsigned(emu::collective(emu::kActive, 0, 0, 0, 0, "__activemask", emu_line));
}
inline void __syncthreads(EMU_LINE) { emu::collective(emu::kBlock, 3, 0, 0, 0, "__syncthreads", emu_line); }
inline int __syncthreads_count(int p, EMU_LINE) {
  return int(emu::collective(emu::kBlock, 0, 0, p != 0, 0, "__syncthreads_count", emu_line));
}
inline int __syncthreads_and(int p, EMU_LINE) {
  return int(emu::collective(emu::kBlock, 1, 0, p != 0, 0, "__syncthreads_and", emu_line));
}
inline int __syncthreads_or(int p, EMU_LINE) {
  return int(emu::collective(emu::kBlock, 2, 0, p != 0, 0, "__syncthreads_or", emu_line));
}
namespace emu {
inline void yield(int line) { collective(kYield, 0, 0, 0, 0, "a spin loop", line); }
}  // namespace emu
inline void __nanosleep(unsigned, EMU_LINE) { emu::yield(emu_line); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }

// ---- atomics: only the types CUDA has (no long long atomicAdd, for one)
namespace emu {
template <class T, class... U>
constexpr bool one_of = (std::is_same_v<T, U> || ...);
using u64 = unsigned long long;
template <class T, class F>
T rmw(T* p, F f) {
  using I =
      std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>;
  I* q = reinterpret_cast<I*>(p);
  I old = __atomic_load_n(q, __ATOMIC_RELAXED), nw;
  T o, n;
  do {
    memcpy(&o, &old, sizeof o);
    n = f(o);
    memcpy(&nw, &n, sizeof n);
  } while (!__atomic_compare_exchange_n(q, &old, nw, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return o;
}
}  // namespace emu
#define EMU_ATOMIC(name, expr, ...)                                                           \
  template <class T>                                                                          \
  T name(T* p, std::type_identity_t<T> v) {                                                   \
    static_assert(emu::one_of<T, __VA_ARGS__>, #name ": CUDA has no overload for this type"); \
    return emu::rmw(p, [v](T o) -> T { return expr; });                                       \
  }
EMU_ATOMIC(atomicAdd, o + v, int, unsigned, emu::u64, float, double)
EMU_ATOMIC(atomicSub, o - v, int, unsigned)
EMU_ATOMIC(atomicMin, v < o ? v : o, int, unsigned, long long, emu::u64)
EMU_ATOMIC(atomicMax, o < v ? v : o, int, unsigned, long long, emu::u64)
EMU_ATOMIC(atomicAnd, o& v, int, unsigned, emu::u64)
EMU_ATOMIC(atomicOr, o | v, int, unsigned, emu::u64)
EMU_ATOMIC(atomicXor, o ^ v, int, unsigned, emu::u64)
EMU_ATOMIC(atomicInc, o >= v ? 0 : o + 1, unsigned)
EMU_ATOMIC(atomicDec, o == 0 || o > v ? v : o - 1, unsigned)
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v, EMU_LINE) {
  static_assert(emu::one_of<T, int, unsigned, emu::u64, float>);
  T o = emu::rmw(p, [v](T) { return v; });
  if (emu::bits(o) == emu::bits(v)) emu::yield(emu_line);  // a spin lock that is still held
  return o;
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expect, std::type_identity_t<T> v, EMU_LINE) {
  static_assert(emu::one_of<T, int, unsigned, emu::u64, unsigned short>);
  T o = emu::rmw(p, [&](T x) { return x == expect ? v : x; });
  if (o != expect) emu::yield(emu_line);
  return o;
}

// ---- loads, bits, arithmetic
#define EMU_LOAD(n)  \
  template <class T> \
  T n(const T* p) {  \
    return *p;       \
  }
EMU_LOAD(__ldg)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldca)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldlu)
EMU_LOAD(__ldcv)
#define EMU_STORE(n)                        \
  template <class T>                        \
  void n(T* p, std::type_identity_t<T> v) { \
    *p = v;                                 \
  }
EMU_STORE(__stcg)
EMU_STORE(__stcs)
EMU_STORE(__stwb)
EMU_STORE(__stwt)
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  std::common_type_t<A, B> x = a, y = b;
  return y < x ? y : x;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  std::common_type_t<A, B> x = a, y = b;
  return x < y ? y : x;
}
inline double lgamma_on_gpu(double x) {
  int sign;  // lgamma itself leaves it where all threads see it: a race, and none of a GPU's
  return lgamma_r(x, &sign);
}
#define lgamma lgamma_on_gpu
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return int((int64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
  return unsigned(((uint64_t(hi) << 32 | lo) << (s & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) {
  return unsigned((uint64_t(hi) << 32 | lo) >> (s & 31));
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }  // from here on not bit-equal to a GPU
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
inline float __expf(float a) { return expf(a); }
inline float __logf(float a) { return logf(a); }
inline float __log2f(float a) { return log2f(a); }
inline float __saturatef(float a) { return a > 1.f ? 1.f : a > 0.f ? a : 0.f; }
inline int __float_as_int(float a) { return emu::unbits<int>(emu::bits(a)); }
inline unsigned __float_as_uint(float a) { return emu::unbits<unsigned>(emu::bits(a)); }
inline float __int_as_float(int a) { return emu::unbits<float>(emu::bits(a)); }
inline float __uint_as_float(unsigned a) { return emu::unbits<float>(emu::bits(a)); }
inline long long __double_as_longlong(double a) { return emu::unbits<long long>(emu::bits(a)); }
inline double __longlong_as_double(long long a) { return emu::unbits<double>(emu::bits(a)); }
inline float __int2float_rn(int a) { return float(a); }
inline float __uint2float_rn(unsigned a) { return float(a); }
inline int __float2int_rz(float a) { return int(a); }
inline unsigned __float2uint_rz(float a) { return unsigned(a); }
inline int __float2int_rd(float a) { return int(floorf(a)); }
