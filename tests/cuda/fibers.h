// Fibers: a CUDA thread of the emulator is one, with a stack of its own below a page that cannot be touched.
//
// Switching costs a few nanoseconds on x86-64, where it is seven registers; elsewhere, and with
// EMU_UCONTEXT, the C library does it. AddressSanitizer and ThreadSanitizer are told of every switch.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__) && !defined(EMU_UCONTEXT)
#define EMU_UCONTEXT 1
#endif
#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" void AnnotateIgnoreReadsBegin(const char*, int);
extern "C" void AnnotateIgnoreReadsEnd(const char*, int);
extern "C" void AnnotateIgnoreWritesBegin(const char*, int);
extern "C" void AnnotateIgnoreWritesEnd(const char*, int);
// The emulator's own accesses are no races.
#define EMU_IGNORE_BEGIN() (AnnotateIgnoreReadsBegin("", 0), AnnotateIgnoreWritesBegin("", 0))
#define EMU_IGNORE_END() (AnnotateIgnoreReadsEnd("", 0), AnnotateIgnoreWritesEnd("", 0))
#else
#define EMU_IGNORE_BEGIN() ((void)0)
#define EMU_IGNORE_END() ((void)0)
#endif

namespace emu {
constexpr size_t kGuard = 4096;  // bytes below a stack that end the process when touched

// While it lives, numbers too small for all their digits are 0, as read and as computed: CuPy compiles so
// (-ftz=true). Here it holds for doubles too. Fibers have the state of those that open them.
struct Flushing {
#if defined(__SSE__)
  unsigned before = _mm_getcsr();
  Flushing() { _mm_setcsr(before | 0x8040u); }
  ~Flushing() { _mm_setcsr(before); }
#elif defined(__aarch64__)
  uint64_t before;
  Flushing() {
    asm volatile("mrs %0, fpcr" : "=r"(before));
    asm volatile("msr fpcr, %0" ::"r"(before | 1u << 24));
  }
  ~Flushing() { asm volatile("msr fpcr, %0" ::"r"(before)); }
#endif
};

struct Fiber {
  char* stack = nullptr;
  size_t size = 0;
#ifdef EMU_UCONTEXT
  ucontext_t context;
#else
  void* sp = nullptr;
#endif
  void* fake = nullptr;  // AddressSanitizer's
  void* tsan = nullptr;  // ThreadSanitizer's
};

#ifndef EMU_UCONTEXT
// Push what a function must keep, change stacks, pop it.
extern "C" void emu_switch(void** save, void* load);
asm(R"(
.text
.p2align 4
.globl emu_switch
.hidden emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch,.-emu_switch
)");
#endif
// Leave one fiber for another; returns when something hops back.
inline void hop(Fiber& from, Fiber& to) {
#ifndef EMU_UCONTEXT
  void* sp = to.sp;  // read before ThreadSanitizer changes fibers
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake, to.stack, to.size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef EMU_UCONTEXT
  swapcontext(&from.context, &to.context);
#else
  emu_switch(&from.sp, sp);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}

// Give a fiber a stack and the function that it begins with.
inline void open_fiber(Fiber& fiber, size_t size, void (*begin)()) {
  void* memory = mmap(nullptr, size + kGuard, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE)) abort();
  fiber.stack = static_cast<char*>(memory) + kGuard;
  fiber.size = size;
#if defined(__SANITIZE_THREAD__)
  fiber.tsan = __tsan_create_fiber(0);
#endif
#ifdef EMU_UCONTEXT
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = size;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, begin, 0);
#else
  void** top = reinterpret_cast<void**>(fiber.stack + size - 64);  // 16-byte aligned, as the ABI asks
  top[0] = reinterpret_cast<void*>(begin);
  fiber.sp = top - 6;
#endif
}

// ThreadSanitizer does not let one go that waits among accesses to be ignored: there it stays.
inline void close_fiber([[maybe_unused]] Fiber& fiber) {
#if !defined(__SANITIZE_THREAD__)
  munmap(fiber.stack - kGuard, fiber.size + kGuard);
#endif
}
}  // namespace emu
