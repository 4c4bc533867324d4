// Blocks and warps of the emulator: 32 lanes that wait for each other, and the scheduler above them.
//
// A collective (shuffle, vote, match, reduction, __syncwarp) parks its lane until all living lanes that its
// mask names have called the same with the same mask; then it is done for all at once. So results do not
// depend on the order in which lanes ran, unless the kernel has a race. A lane that no order can free is a
// deadlock, and the report says which lanes wait at which line.
#pragma once
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fibers.h"

#ifndef EMU_MAX_SHARED
#define EMU_MAX_SHARED 232448  // bytes of dynamic shared memory: sm_90 gives a block 227 KiB
#endif

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
namespace emu {
enum Kind : uint8_t { kNone, kShfl, kVote, kMatch, kReduce, kSyncWarp, kActive, kYield, kBlock };

struct Warp;
struct Lane : Fiber {
  uint3 tid;
  unsigned id;
  Warp* warp;
};

struct Warp {                   // a slot a lane: what it called, with what, and what it gets back
  unsigned exist, done, ready;  // lanes that there are, have returned, can run
  uint8_t kind[32];             // of collective that the lane waits at
  int sub[32], arg[32];         // which vote or reduction; of a shuffle source << 2 | how, and width << 8
  unsigned mask[32];            // lanes that it names
  uint64_t val[32], out[32];    // what it gives, and gets
  const char* name[32];         // of the intrinsic, and where it stands
  int line[32];
  Lane* lane[32];
};

struct Engine {
  dim3 grid, block;
  uint3 bid;
  void (*call)(void**) = nullptr;
  void** args = nullptr;
  const char* kernel = "";
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  Fiber main;
  uint64_t rng = 0, spins = 0;
  bool shuffled = false, fresh = false, yielded = false;
  std::string error;
};
inline Engine E;             // one launch at a time: the library is not re-entrant
inline Lane* cur = nullptr;  // the lane that runs

inline uint64_t rnd() {  // splitmix64, for the order of lanes only
  uint64_t z = (E.rng += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// End the launch with a message: back to the scheduler, and never to this lane.
[[noreturn]] __attribute__((format(printf, 1, 2), noinline)) inline void fail(const char* fmt, ...) {
  char b[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(b, sizeof b, fmt, ap);
  va_end(ap);
  char head[256];
  snprintf(head, sizeof head, "%s: block (%u,%u,%u) thread (%u,%u,%u): ", E.kernel, E.bid.x, E.bid.y, E.bid.z,
           cur->tid.x, cur->tid.y, cur->tid.z);
  E.error = std::string(head) + b;
  Lane* me = cur;
  cur = nullptr;
  hop(*me, E.main);
  abort();
}

inline uint64_t reduce(int sub, uint64_t a, uint64_t b) {  // 32-bit operands, __reduce_*_sync
  switch (sub) {
    case 0:
      return uint32_t(a + b);
    case 1:
      return uint32_t(int32_t(a) < int32_t(b) ? a : b);
    case 2:
      return uint32_t(int32_t(a) > int32_t(b) ? a : b);
    case 3:
      return uint32_t(uint32_t(a) < uint32_t(b) ? a : b);
    case 4:
      return uint32_t(uint32_t(a) > uint32_t(b) ? a : b);
    case 5:
      return a & b;
    case 6:
      return a | b;
    default:
      return a ^ b;
  }
}

// All members have arrived: compute every member's result.
inline void complete(Warp& w, unsigned members) {
  unsigned first = __builtin_ctz(members), all = 0;
  switch (w.kind[first]) {
    case kShfl:
      for (unsigned m = members; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m), width = w.arg[l] >> 8, lo = l & ~(width - 1), hi = lo + width - 1;
        int a = int(w.sub[l] >> 2), how = w.sub[l] & 3;
        int s = how == 0   ? int(lo | (unsigned(a) & (width - 1)))
                : how == 1 ? int(l) - a
                : how == 2 ? int(l) + a
                           : int(l) ^ a;
        if ((how == 1 && s < int(lo)) || (how >= 2 && (s > int(hi) || s < 0))) s = l;
        if (!(members >> s & 1)) {
          cur = w.lane[l];
          fail("%s (line %d) reads lane %d, which is not taking part (mask 0x%08x, taking part 0x%08x)",
               w.name[l], w.line[l], s, w.mask[l], members);
        }
        w.out[l] = w.val[s];
      }
      break;
    case kVote:
      for (unsigned m = members; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m);
        all |= unsigned(w.val[l] != 0) << l;
      }
      for (unsigned m = members; m; m &= m - 1) w.out[__builtin_ctz(m)] = all;
      break;
    case kMatch:
      for (unsigned m = members; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m), eq = 0;
        for (unsigned q = members; q; q &= q - 1) {
          unsigned j = __builtin_ctz(q);
          eq |= unsigned(w.val[j] == w.val[l]) << j;
        }
        w.out[l] = eq;
      }
      break;
    case kReduce: {
      uint64_t r = w.val[first];
      for (unsigned m = members & (members - 1); m; m &= m - 1)
        r = reduce(w.sub[first], r, w.val[__builtin_ctz(m)]);
      for (unsigned m = members; m; m &= m - 1) w.out[__builtin_ctz(m)] = r;
      break;
    }
    case kActive:
      for (unsigned m = members; m; m &= m - 1) w.out[__builtin_ctz(m)] = members;
      break;
    default:
      break;
  }
  w.ready |= members;
}

// No lane of the warp can run: release every group of lanes that is complete.
inline void resolve(Warp& w) {
  unsigned alive = w.exist & ~w.done, active = 0, yield = 0;
  for (unsigned t = alive; t;) {
    unsigned l = __builtin_ctz(t), k = w.kind[l];
    if (k >= kActive) {  // waits for nobody by name; at a barrier of the block, for the scheduler
      if (k == kActive) active |= 1u << l;
      if (k == kYield) yield |= 1u << l;
      t &= t - 1;
      continue;
    }
    unsigned need = w.mask[l] & alive, m = need;
    for (; m; m &= m - 1) {
      unsigned j = __builtin_ctz(m);
      if (w.kind[j] != k || w.mask[j] != w.mask[l] || (k != kShfl && w.sub[j] != w.sub[l]) ||
          (k == kShfl && (w.sub[j] & 3) != (w.sub[l] & 3)))
        break;
    }
    if (m) {
      t &= t - 1;
      continue;
    }
    complete(w, need);
    t &= ~need;
  }
  if (w.ready) {
    E.spins = 0;
    w.ready |= yield;
    return;
  }
  while (active) {  // nobody else can move: the lanes at one line are "active together"
    unsigned g = 0, l0 = __builtin_ctz(active);
    for (unsigned m = active; m; m &= m - 1)
      if (w.line[__builtin_ctz(m)] == w.line[l0]) g |= 1u << __builtin_ctz(m);
    complete(w, g);
    active &= ~g;
  }
  if (!w.ready && yield) {
    w.ready = yield;
    E.yielded = true;
  }
}

inline Lane* next(Warp& w) {  // which lane runs now; null: back to the scheduler
  if (!w.ready) {
    E.yielded = false;
    resolve(w);
    if (E.shuffled || E.yielded || !w.ready) return nullptr;
  }
  unsigned r = w.ready;
  if (E.shuffled)
    for (unsigned skip = rnd() % __builtin_popcount(r); skip; --skip) r &= r - 1;
  return w.lane[__builtin_ctz(r)];
}

// Let other lanes run until this one is ready.
__attribute__((noinline)) inline void park() {
  Lane* me = cur;
  me->warp->ready &= ~(1u << (me->id & 31));
  Lane* nx = next(*me->warp);
  cur = nx;
  if (nx == me) return;
  hop(*me, nx ? static_cast<Fiber&>(*nx) : E.main);
  // whoever switched here has set cur = me
}

// What a fiber does: the kernel, once a block.
inline void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  for (;;) {
    EMU_IGNORE_BEGIN();
    Lane* me = cur;
    auto call = E.call;
    void** args = E.args;
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(&E.main);
#endif
    EMU_IGNORE_END();
    call(args);
    EMU_IGNORE_BEGIN();
#if defined(__SANITIZE_THREAD__)
    __tsan_release(&E.bid);
#endif
    Warp& w = *me->warp;
    w.done |= 1u << (me->id & 31);
    w.ready &= ~(1u << (me->id & 31));
    E.spins = 0;
    Lane* nx = next(w);
    cur = nx;
    hop(*me, nx ? static_cast<Fiber&>(*nx) : E.main);  // comes back for the next block
    EMU_IGNORE_END();
  }
}

// Wait for the other lanes at an intrinsic, and return what it gives this one.
inline uint64_t collective(Kind k, int sub, unsigned mask, uint64_t v, int arg, const char* name, int line) {
  EMU_IGNORE_BEGIN();
  unsigned l = cur->id & 31;
  Warp& w = *cur->warp;
  if (k < kActive && !(mask >> l & 1))
    fail("%s (line %d): lane %u is not in its own mask 0x%08x", name, line, l, mask);
  w.kind[l] = k;
  w.sub[l] = sub;
  w.mask[l] = mask;
  w.val[l] = v;
  w.arg[l] = arg;
  w.name[l] = name;
  w.line[l] = line;
#if defined(__SANITIZE_THREAD__)
  if (k == kSyncWarp) __tsan_release(&w);
  if (k == kBlock) __tsan_release(&E.grid);
#endif
  park();
#if defined(__SANITIZE_THREAD__)
  if (k == kSyncWarp) __tsan_acquire(&w);
  if (k == kBlock) __tsan_acquire(&E.grid);
#endif
  EMU_IGNORE_END();
  return w.out[l];
}

inline std::string where() {  // who waits where, for the deadlock report
  std::string s;
  char b[256];
  for (size_t i = 0; i < E.warps.size(); ++i) {
    Warp& w = E.warps[i];
    if (unsigned gone = w.done & w.exist) {
      snprintf(b, sizeof b, "\n  warp %zu: lanes 0x%08x have exited", i, gone);
      s += b;
    }
    for (unsigned t = w.exist & ~w.done; t;) {
      unsigned l = __builtin_ctz(t), g = 0;
      for (unsigned m = t; m; m &= m - 1) {
        unsigned j = __builtin_ctz(m);
        if (w.kind[j] == w.kind[l] && w.line[j] == w.line[l] && w.mask[j] == w.mask[l]) g |= 1u << j;
      }
      snprintf(b, sizeof b, "\n  warp %zu: lanes 0x%08x wait at %s, line %d, mask 0x%08x", i, g, w.name[l],
               w.line[l], w.mask[l]);
      s += b;
      t &= ~g;
      if (s.size() > 3000) return s + "\n  ...";
    }
  }
  return s;
}

// ---- shared memory: the module's thread-local storage (every __shared__ variable is in it)
struct TlsRange {
  char* base;
  size_t size;
  const void* probe;
};
inline int find_tls(dl_phdr_info* i, size_t, void* p) {
  auto* r = static_cast<TlsRange*>(p);
  bool mine = false;
  size_t tls = 0;
  for (int k = 0; k < i->dlpi_phnum; ++k) {
    const auto& h = i->dlpi_phdr[k];
    auto lo = i->dlpi_addr + h.p_vaddr;
    if (h.p_type == PT_LOAD && (ElfW(Addr))r->probe >= lo && (ElfW(Addr))r->probe < lo + h.p_memsz)
      mine = true;
    if (h.p_type == PT_TLS) tls = h.p_memsz;
  }
  if (mine && tls) {
    r->base = static_cast<char*>(i->dlpi_tls_data);
    r->size = tls;
  }
  return mine;
}
}  // namespace emu

extern "C" {
inline thread_local __attribute__((aligned(128))) unsigned char smem[EMU_MAX_SHARED + 128];
}

namespace emu {
// Run all threads of a block to their ends, warp by warp; false if there is an error to report.
inline bool run_block(unsigned smem_bytes, const TlsRange& tls) {
  char *dyn = reinterpret_cast<char*>(smem), *dyn_end = dyn + sizeof smem;
  if (tls.base && tls.base <= dyn && dyn_end <= tls.base + tls.size) {
    memset(tls.base, 0xFF, size_t(dyn - tls.base));
    memset(dyn_end, 0xFF, size_t(tls.base + tls.size - dyn_end));
  }
  const unsigned canary = smem_bytes + 4096 < sizeof smem ? smem_bytes + 4096 : unsigned(sizeof smem);
  memset(smem, 0xFF, canary);
#if defined(__SANITIZE_THREAD__)
  __tsan_release(&E.main);
#endif
  for (Warp& w : E.warps) {
    w.done = 0;
    w.ready = w.exist;
  }
  for (;;) {
    bool moved = false;
    size_t n = E.warps.size(), off = E.shuffled ? rnd() % n : 0;
    for (size_t i = 0; i < n; ++i) {
      Warp& w = E.warps[(i + off) % n];
      if (!w.ready) continue;
      moved = true;
      cur = next(w);
      hop(E.main, *cur);
      if (!E.error.empty()) return false;
    }
    if (moved) {
      if (E.yielded && ++E.spins > 20000) {
        E.error = std::string(E.kernel) + ": livelock, threads only spin:" + where();
        return false;
      }
      continue;
    }
    bool all_done = true, all_block = true;
    int line = -1, sub = -1;
    uint64_t count = 0, alive = 0;
    const char* bad = nullptr;
    for (Warp& w : E.warps)
      for (unsigned m = w.exist & ~w.done; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m);
        all_done = false;
        if (w.kind[l] != kBlock) {
          all_block = false;
          continue;
        }
        if (line < 0) {
          line = w.line[l];
          sub = w.sub[l];
        }
        if (w.line[l] != line || w.sub[l] != sub)
          bad = "barrier in divergent code (not the same __syncthreads for all threads)";
        count += w.val[l] != 0;
        ++alive;
      }
    if (all_done) break;
    if (!all_block) bad = "deadlock";
    if (bad) {
      char b[96];
      snprintf(b, sizeof b, ": block (%u,%u,%u): ", E.bid.x, E.bid.y, E.bid.z);
      E.error = std::string(E.kernel) + b + bad + where();
      return false;
    }
    uint64_t r = sub == 0 ? count : sub == 1 ? count == alive : count != 0;
    for (Warp& w : E.warps) {
      w.ready = w.exist & ~w.done;
      for (unsigned m = w.ready; m; m &= m - 1) w.out[__builtin_ctz(m)] = r;
    }
    E.spins = 0;
  }
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(&E.bid);
#endif
  for (unsigned i = smem_bytes; i < canary; ++i)
    if (smem[i] != 0xFF) {
      E.error = std::string(E.kernel) + ": wrote past its " + std::to_string(smem_bytes) +
                " bytes of dynamic shared memory, at byte " + std::to_string(i);
      return false;
    }
  return true;
}

// Open the fibers of a block; those of the launch before wait for a new block and are taken again.
inline void prepare(unsigned threads, size_t stack) {
#if defined(__SANITIZE_THREAD__)
  E.main.tsan = __tsan_get_current_fiber();
#endif
  if (E.fresh && E.lanes.size() == threads && E.lanes[0].size == stack) return;
  for (Lane& lane : E.lanes) close_fiber(lane);
  E.lanes = std::vector<Lane>(threads);
  E.warps = std::vector<Warp>((threads + 31) / 32);
  for (unsigned i = 0; i < threads; ++i) {
    Lane& lane = E.lanes[i];
    lane.id = i;
    lane.tid = {i % E.block.x, i / E.block.x % E.block.y, i / (E.block.x * E.block.y)};
    lane.warp = &E.warps[i / 32];
    lane.warp->lane[i % 32] = &lane;
    lane.warp->exist |= 1u << (i % 32);
    open_fiber(lane, stack, fiber_main);
  }
}

struct Options {
  uint64_t seed, stack;
};

inline int launch(const char* name, void (*call)(void**), const unsigned* g, const unsigned* b,
                  unsigned smem_bytes, void** args, Options* o, char* err, size_t errlen) {
  EMU_IGNORE_BEGIN();
  uint64_t threads = uint64_t(b[0]) * b[1] * b[2], blocks = uint64_t(g[0]) * g[1] * g[2];
  E.error.clear();
  E.kernel = name;
  if (!threads || threads > 1024 || b[2] > 64)
    E.error = "block size not in 1..1024";
  else if (!blocks || g[1] > 65535 || g[2] > 65535 || g[0] > 0x7fffffffu)
    E.error = "grid out of range";
  else if (smem_bytes > EMU_MAX_SHARED)
    E.error = "too much dynamic shared memory";
  if (E.error.empty()) {
    if (b[0] != E.block.x || b[1] != E.block.y || b[2] != E.block.z) E.fresh = false;
    E.grid = {g[0], g[1], g[2]};
    E.block = {b[0], b[1], b[2]};
    E.call = call;
    E.args = args;
    E.shuffled = o->seed != 0;
    E.rng = o->seed;
    E.spins = 0;
    prepare(unsigned(threads), o->stack);
    E.fresh = false;
    memset(smem, 0xFF, sizeof smem);  // also allocates this thread's storage
    TlsRange tls{nullptr, 0, reinterpret_cast<const void*>(&find_tls)};
    dl_iterate_phdr(find_tls, &tls);
    uint64_t step = 1, off = 0;
    if (E.shuffled && blocks > 1) {
      off = rnd() % blocks;
      for (step = 1 + rnd() % blocks; std::gcd(step, blocks) != 1; ++step) {
      }
    }
    bool ok = true;
    for (uint64_t i = 0; ok && i < blocks; ++i) {
      uint64_t j = (off + i * step) % blocks;
      E.bid = {unsigned(j % g[0]), unsigned(j / g[0] % g[1]), unsigned(j / (uint64_t(g[0]) * g[1]))};
      ok = run_block(smem_bytes, tls);
    }
    E.fresh = ok;
  }
  EMU_IGNORE_END();
  if (E.error.empty()) return 0;
  snprintf(err, errlen, "%s", E.error.c_str());
  return 1;
}

// ---- kernel table: name, signature ("P4f" = pointer to 4-byte float, "4i" = int by value), caller
template <class T>
std::string code() {
  if constexpr (std::is_pointer_v<T>)
    return "P" + code<std::remove_cv_t<std::remove_pointer_t<T>>>() +
           (std::is_const_v<std::remove_pointer_t<T>> ? "c" : "");
  else if constexpr (std::is_same_v<T, bool>)
    return "1b";
  else if constexpr (std::is_floating_point_v<T>)
    return std::to_string(sizeof(T)) + "f";
  else if constexpr (std::is_integral_v<T>)
    return std::to_string(sizeof(T)) + (std::is_signed_v<T> ? "i" : "u");
  else
    return std::to_string(sizeof(T)) + "V";
}
template <auto F>
struct Kernel;
template <class... A, void (*F)(A...)>
struct Kernel<F> {
  template <size_t... I>
  static void go(void** a, std::index_sequence<I...>) {
    F(*static_cast<std::remove_const_t<A>*>(a[I])...);
  }
  static void call(void** a) { go(a, std::index_sequence_for<A...>()); }
  static std::string sig() {
    std::string s;
    ((s += code<std::remove_const_t<A>>() + ","), ...);
    return s;
  }
};
struct Entry {
  std::string name, sig;
  void (*call)(void**);
};
inline std::vector<Entry>& table() {
  static std::vector<Entry> t;
  return t;
}
struct Add {
  Add(const char* n, std::string s, void (*c)(void**)) { table().push_back({n, std::move(s), c}); }
};
}  // namespace emu
#define EMU_CAT2(a, b) a##b
#define EMU_CAT(a, b) EMU_CAT2(a, b)
#define EMU_KERNEL(text, ...)                                                           \
  static emu::Add EMU_CAT(emu_add_, __COUNTER__)(text, emu::Kernel<__VA_ARGS__>::sig(), \
                                                 &emu::Kernel<__VA_ARGS__>::call);
#define EMU_EXPORT extern "C" __attribute__((visibility("default")))
EMU_EXPORT inline __attribute__((used)) int emu_count() { return int(emu::table().size()); }
EMU_EXPORT inline __attribute__((used)) const char* emu_name(int i) { return emu::table()[i].name.c_str(); }
EMU_EXPORT inline __attribute__((used)) const char* emu_signature(int i) {
  return emu::table()[i].sig.c_str();
}
EMU_EXPORT inline __attribute__((used)) int emu_launch(int i, const unsigned* g, const unsigned* b,
                                                       unsigned smem_bytes, void** args, emu::Options* o,
                                                       char* err, size_t errlen) {
  const emu::Flushing flushing;
  return emu::launch(emu::table()[i].name.c_str(), emu::table()[i].call, g, b, smem_bytes, args, o, err,
                     errlen);
}
