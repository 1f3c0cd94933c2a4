// How floats are computed while a host kernel runs: by IEEE 754, to nearest, subnormal numbers as
// they are.
//
// Callers have other rules: XLA's threads take subnormal numbers for 0, those of PyTorch do not, a
// program may round upwards. A kernel's bits would depend on whose thread it runs on, and on a GPU,
// where nothing is flushed, be others still.
#ifndef KBUNDLE_LOADER_FLOAT_RULES_H_
#define KBUNDLE_LOADER_FLOAT_RULES_H_

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace kbundle {

// Sets the rules of the calling thread, and puts back what was there when it dies. A thread that
// has them already pays for one read.
class FloatRules {
 public:
  FloatRules() : before_(Read()) {
    if (Of(before_) != kPlain) Write(kPlain);
  }
  ~FloatRules() {
    if (Of(before_) != kPlain) Write(before_);
  }
  FloatRules(const FloatRules&) = delete;
  FloatRules& operator=(const FloatRules&) = delete;

 private:
#if defined(__SSE__)
  using Word = uint32_t;
  static constexpr Word kPlain = 0x1f80;  // every exception masked
  static constexpr Word kRaised = 0x3f;   // says what happened, and decides nothing
  static Word Read() { return _mm_getcsr(); }
  static void Write(Word word) { _mm_setcsr(word); }
  static Word Of(Word word) { return word & ~kRaised; }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kPlain = 0;
  static Word Read() {
    Word word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void Write(Word word) { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
  static Word Of(Word word) { return word; }
#else
#error "how does this processor keep the rules of its floats?"
#endif

  const Word before_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_FLOAT_RULES_H_
