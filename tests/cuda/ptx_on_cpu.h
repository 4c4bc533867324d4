// What the instructions of PTX do, for kernels that ptx_on_cpu.py has written as C++.
//
// A register is an unsigned number of its width, or a bool; an instruction reads it as the type it names.
// Addresses are those of the CPU; one of shared memory is 32 bits wide, counted from the dynamic part.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <unordered_map>

namespace ptx {
template <class T>
using wide = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                                std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
template <class T>
using unsigned_of = typename std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>,
                                                std::make_unsigned<T>, std::type_identity<T>>::type;

// A register, or a number of the text, as a type: its lowest bytes.
template <class T, class R>
inline T as(R from) {
  if constexpr (std::is_same_v<T, bool>) return bool(from);
  T to{};
  if constexpr (std::is_same_v<R, bool>) static_assert(std::is_same_v<T, bool>, "a predicate is no number");
  memcpy(&to, &from, sizeof(T) < sizeof(R) ? sizeof(T) : sizeof(R));
  return to;
}
// Into a register, which may be wider: signed numbers keep their sign.
template <class R, class T>
inline void set(R& to, T from) {
  if constexpr (std::is_same_v<R, bool> || std::is_same_v<R, T>)
    to = R(from);
  else if constexpr (std::is_integral_v<T>)
    to = R(from);
  else {
    static_assert(sizeof(R) >= sizeof(T));
    to = 0;
    memcpy(&to, &from, sizeof from);
  }
}

// ---- arithmetic
#define PTX_OPERATION(name, sign)                                                                 \
  template <class T>                                                                              \
  inline T name(T a, T b) {                                                                       \
    if constexpr (std::is_integral_v<T> && sizeof(T) < 8) return T(uint64_t(a) sign uint64_t(b)); \
    return T(unsigned_of<T>(a) sign unsigned_of<T>(b));                                           \
  }
PTX_OPERATION(add_, +)
PTX_OPERATION(sub_, -)
PTX_OPERATION(mul_, *)
#undef PTX_OPERATION
template <class T>
inline T mul_lo_(T a, T b) {
  return mul_(a, b);
}
template <class T>
inline T mad_lo_(T a, T b, T c) {
  return add_(mul_(a, b), c);
}
template <class T>
inline wide<T> mul_wide_(T a, T b) {
  return wide<T>(a) * wide<T>(b);
}
template <class T>
inline wide<T> mad_wide_(T a, T b, wide<T> c) {
  return add_(mul_wide_(a, b), c);
}
template <class T>
inline T mul_hi_(T a, T b) {
  using W = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return T((W(a) * W(b)) >> (8 * sizeof(T)));
}
template <class T>
inline T mad_hi_(T a, T b, T c) {
  return add_(mul_hi_(a, b), c);
}
template <class T>
inline T div_(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) emu::fail("an integer is divided by 0");
    if (std::is_signed_v<T> && b == T(-1)) return sub_(T(0), a);
  }
  return T(a / b);
}
template <class T>
inline T rem_(T a, T b) {
  if (b == 0) emu::fail("an integer is divided by 0");
  return std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b);
}
template <class T>
inline T min_(T a, T b) {  // of a number and NaN the number, of zeros the negative one
  if constexpr (!std::is_integral_v<T>) {
    if (a != a) return b;
    if (a == b) return std::signbit(a) ? a : b;
    return b < a ? b : a;
  }
  return b < a ? b : a;
}
template <class T>
inline T max_(T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    if (a != a) return b;
    if (a == b) return std::signbit(a) ? b : a;
    return a < b ? b : a;
  }
  return a < b ? b : a;
}
template <class T>
inline T neg_(T a) {
  if constexpr (std::is_integral_v<T>)
    return sub_(T(0), a);
  else
    return -a;
}
template <class T>
inline T abs_(T a) {
  if constexpr (std::is_integral_v<T>)
    return a < 0 ? neg_(a) : a;
  else
    return std::fabs(a);
}
template <class T>
inline T fma_(T a, T b, T c) {
  return std::fma(a, b, c);
}
template <class T>
inline T rcp_(T a) {
  return T(1) / a;
}
template <class T>
inline T sqrt_(T a) {
  return std::sqrt(a);
}
inline double rcp_approx_(double a) {  // a beginning for Newton's steps: the upper half of the number
  return std::bit_cast<double>(std::bit_cast<uint64_t>(1 / a) & 0xFFFFFFFF00000000u);
}

// ---- bits
template <class T>
inline T and_(T a, T b) {
  return T(a & b);
}
template <class T>
inline T or_(T a, T b) {
  return T(a | b);
}
template <class T>
inline T xor_(T a, T b) {
  return T(a ^ b);
}
template <class T>
inline T not_(T a) {
  if constexpr (std::is_same_v<T, bool>)
    return !a;
  else
    return T(~a);
}
template <class T>
inline T shl_(T a, uint32_t n) {
  return n >= 8 * sizeof(T) ? T(0) : T(unsigned_of<T>(a) << n);
}
template <class T>
inline T shr_(T a, uint32_t n) {
  if (n >= 8 * sizeof(T)) return std::is_signed_v<T> && a < 0 ? T(-1) : T(0);
  return T(a >> n);
}
template <class T>
inline uint32_t popc_(T a) {
  return uint32_t(std::popcount(a));
}
template <class T>
inline uint32_t clz_(T a) {
  return uint32_t(std::countl_zero(a));
}
template <class T>
inline T brev_(T a) {
  T r = 0;
  for (unsigned i = 0; i < 8 * sizeof(T); ++i) r |= T((a >> i & 1) << (8 * sizeof(T) - 1 - i));
  return r;
}
template <class T>
inline uint32_t bfind_(T a) {  // the highest bit that is set, of a negative number that is not
  const auto u = unsigned_of<T>(std::is_signed_v<T> && a < 0 ? ~a : a);
  return u ? uint32_t(8 * sizeof(T) - 1 - std::countl_zero(u)) : ~0u;
}
template <class T>
inline uint32_t bfind_shiftamt_(T a) {
  const uint32_t bit = bfind_(a);
  return bit == ~0u ? bit : uint32_t(8 * sizeof(T) - 1) - bit;
}
template <class T>
inline T bfi_(T a, T b, uint32_t from, uint32_t n) {  // the lowest n bits of a into b
  from &= 255, n &= 255;
  const T field = shl_(T(n >= 8 * sizeof(T) ? T(~T(0)) : T(shl_(T(1), n) - 1)), from);
  return T((b & ~field) | (shl_(a, from) & field));
}
template <class T>
inline T bfe_(T a, uint32_t from, uint32_t n) {  // n bits of a, beyond whose end its sign goes on
  from &= 255, n &= 255;
  if (n == 0) return 0;
  const T shifted = shr_(a, from);
  if (n >= 8 * sizeof(T)) return shifted;
  const unsigned beside = 8 * sizeof(T) - n;
  return shr_(shl_(shifted, beside), beside);
}
inline uint32_t shf_l_wrap_(uint32_t low, uint32_t high, uint32_t n) { return __funnelshift_l(low, high, n); }
inline uint32_t shf_r_wrap_(uint32_t low, uint32_t high, uint32_t n) { return __funnelshift_r(low, high, n); }
inline uint32_t prmt_(uint32_t a, uint32_t b, uint32_t how) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t which = how >> (4 * i) & 15, byte = uint32_t(bytes >> (8 * (which & 7)) & 255);
    r |= (which & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return r;
}
inline uint32_t lop3_(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t r = 0;
  for (int i = 0; i < 8; ++i)
    if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return r;
}
template <class T>
inline T selp_(T a, T b, bool p) {
  return p ? a : b;
}

// ---- comparisons: of floats, those that end in u hold for NaN too
template <class T>
inline bool cmp_eq(T a, T b) {
  return a == b;
}
template <class T>
inline bool cmp_ne(T a, T b) {
  return a < b || b < a;
}
template <>
inline bool cmp_ne(bool a, bool b) {
  return a != b;
}
template <class T>
inline bool cmp_lt(T a, T b) {
  return a < b;
}
template <class T>
inline bool cmp_le(T a, T b) {
  return a <= b;
}
template <class T>
inline bool cmp_gt(T a, T b) {
  return a > b;
}
template <class T>
inline bool cmp_ge(T a, T b) {
  return a >= b;
}
template <class T>
inline bool cmp_equ(T a, T b) {
  return !(a < b || b < a);
}
template <class T>
inline bool cmp_neu(T a, T b) {
  return !(a == b);
}
template <class T>
inline bool cmp_ltu(T a, T b) {
  return !(a >= b);
}
template <class T>
inline bool cmp_leu(T a, T b) {
  return !(a > b);
}
template <class T>
inline bool cmp_gtu(T a, T b) {
  return !(a <= b);
}
template <class T>
inline bool cmp_geu(T a, T b) {
  return !(a < b);
}
template <class T>
inline bool cmp_num(T a, T b) {
  return a == a && b == b;
}
template <class T>
inline bool cmp_nan(T a, T b) {
  return a != a || b != b;
}

// ---- conversions
enum Rounding { kNearest, kZero, kDown, kUp, kNone };
template <class S>
inline S rounded(S v, Rounding how) {
  return how == kNearest ? std::nearbyint(v)
         : how == kZero  ? std::trunc(v)
         : how == kDown  ? std::floor(v)
         : how == kUp    ? std::ceil(v)
                         : v;
}
template <class D, class S, Rounding how>
inline D cvt(S v) {
  if constexpr (std::is_integral_v<S>)
    return D(v);  // among integers the lowest bits, and to floats the nearest
  else if constexpr (!std::is_integral_v<D>)
    return D(rounded(v, sizeof(D) == sizeof(S) ? how : kNone));
  else {
    const S r = rounded(v, how);
    if (r != r) return 0;
    const S beyond = std::ldexp(S(1), std::numeric_limits<D>::digits);
    if (r >= beyond) return std::numeric_limits<D>::max();
    if (r < (std::is_signed_v<D> ? -beyond : S(0))) return std::numeric_limits<D>::min();
    return D(r);
  }
}

// ---- memory
inline std::unordered_map<uintptr_t, uint8_t> touched;  // two bytes: 1 read by ld.global.nc, 2 written
inline std::string trouble;

__attribute__((noinline)) inline void touch(const void* place, size_t size, uint8_t how, int line) {
  EMU_IGNORE_BEGIN();
  for (uintptr_t at = uintptr_t(place) / 2; at <= (uintptr_t(place) + size - 1) / 2; ++at) {
    uint8_t& seen = touched[at];
    seen |= how;
    if (seen == 3 && trouble.empty())
      trouble = "the read-only cache is asked for what the kernel itself writes (line " +
                std::to_string(line) + " of its PTX " + (how == 1 ? "reads it)" : "writes it)");
  }
  EMU_IGNORE_END();
}
[[noreturn]] __attribute__((noinline)) inline void misplaced(const void* place, size_t size, int line) {
  emu::fail("line %d of its PTX: address %p is no multiple of %zu", line, place, size);
}
template <class T, int n>
inline T* at(const void* place, int line) {
  if (uintptr_t(place) % (sizeof(T) * n)) misplaced(place, sizeof(T) * n, line);
  return static_cast<T*>(const_cast<void*>(place));
}
template <class T, int n>
inline T* read_only(const void* place, int line) {
  touch(place, sizeof(T) * n, 1, line);
  return at<T, n>(place, line);
}
template <class T, int n>
inline T* written(void* place, int line) {
  touch(place, sizeof(T) * n, 2, line);
  return at<T, n>(place, line);
}
inline size_t dynamic_bytes = 0;
inline bool is_dynamic(const char* p, size_t n) {
  return p >= reinterpret_cast<char*>(smem) && p + n <= reinterpret_cast<char*>(smem) + dynamic_bytes;
}
[[noreturn]] __attribute__((noinline)) inline void outside(uint32_t address, int line) {
  emu::fail("line %d of its PTX: no variable of shared memory lies at %d", line, int(address));
}
inline char* host(uint64_t address) { return reinterpret_cast<char*>(address); }
inline char* dynamic() { return reinterpret_cast<char*>(smem); }
inline uint32_t offset(const void* variable) {
  return uint32_t(static_cast<const char*>(variable) - dynamic());
}

// ---- lanes
inline uint32_t lane() { return emu::cur->id & 31; }
template <class R>
inline bool shfl(R& to, int how, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, int line) {
  const int width = 32 - int(c >> 8 & 31), l = int(lane()), low = l & -width, high = low + width - 1;
  if (int(c & 31) != (how == 1 ? 0 : 31)) emu::fail("line %d of its PTX: shfl.sync with c = %u", line, c);
  const int step = int(how == 0 ? b & 31 : b);
  to = R(emu::collective(emu::kShfl, step * 4 | how, mask, value, width << 8, "shfl.sync", line));
  return how == 0 || (how == 1 ? l - step >= low : how == 2 ? l + step <= high : (l ^ step) <= high);
}
inline uint32_t ballot(bool p, uint32_t mask, int line) { return __ballot_sync(mask, p, line); }
inline bool any(bool p, uint32_t mask, int line) { return __any_sync(mask, p, line); }
inline bool all(bool p, uint32_t mask, int line) { return __all_sync(mask, p, line); }
template <class T>
inline unsigned match_any(T v, uint32_t mask, int line) {
  return __match_any_sync(mask, v, line);
}
template <class T>
inline unsigned match_all(T v, uint32_t mask, int line, int& same) {
  return __match_all_sync(mask, v, &same, line);
}
#define PTX_REDUX(name)                                 \
  template <class T>                                    \
  inline T redux_##name(T v, uint32_t mask, int line) { \
    return T(__reduce_##name##_sync(mask, v, line));    \
  }
PTX_REDUX(add)
PTX_REDUX(min)
PTX_REDUX(max)
PTX_REDUX(and)
PTX_REDUX(or)
PTX_REDUX(xor)
#undef PTX_REDUX
}  // namespace ptx

EMU_EXPORT inline __attribute__((used)) void ptx_begin(unsigned shared) {
  ptx::dynamic_bytes = shared;
  ptx::touched.clear();
  ptx::trouble.clear();
}
EMU_EXPORT inline __attribute__((used)) const char* ptx_trouble() { return ptx::trouble.c_str(); }
