// The arithmetic of the expression language: one overflow-checked code for the builder (which
// prunes grids and checks problems) and the loader (which plans), so that they cannot disagree.
//
// A stack slot is a Slot: a value or an error. Errors travel through every operator but && || ?:,
// which look only at the side that decides. Pure functions, no allocation.
#ifndef KBUNDLE_ARITHMETIC_H_
#define KBUNDLE_ARITHMETIC_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kbundle/format.h"

namespace kbundle {

// As wide as a value: a slot is written and read as two words, where a byte written and a word read
// of it would wait for the store.
enum class SlotError : int64_t {
  kNone = 0,
  kOverflow = 1,
  kDivisionByZero = 2,
  kNoSuchAxis = 3,
  kLet = 4,
  kBatch = 5,
};

// "overflows 64 bits", for messages that begin with the expression's text; "" for kNone.
constexpr const char* Describe(SlotError error) {
  switch (error) {
    case SlotError::kNone:
      return "";
    case SlotError::kOverflow:
      return "overflows 64 bits";
    case SlotError::kDivisionByZero:
      return "divides by zero";
    case SlotError::kNoSuchAxis:
      return "asks for an axis or element that is not there";
    case SlotError::kLet:
      return "uses a let that could not be computed";
    case SlotError::kBatch:
      return "depends on how many items are in the batch";
  }
  return "";
}

struct Slot {
  int64_t value = 0;
  SlotError error = SlotError::kNone;
  constexpr bool ok() const { return error == SlotError::kNone; }
};

// How many slots an operator takes; 0 for one that pushes a value and for a number that is no
// opcode (tell those apart with IsOpcode).
constexpr int Arity(Opcode opcode) {
  if (opcode >= Opcode::kAdd && opcode <= Opcode::kCeilDiv) return 2;
  if (opcode >= Opcode::kEq && opcode <= Opcode::kOr) return 2;
  if (opcode >= Opcode::kNeg && opcode <= Opcode::kCeilLog2) return 1;
  return opcode == Opcode::kSelect ? 3 : 0;
}

constexpr bool IsOpcode(Opcode opcode) {
  return (opcode >= Opcode::kConst && opcode <= Opcode::kFloatBits) || Arity(opcode) != 0;
}

namespace arithmetic_internal {

constexpr Slot Overflow() { return {0, SlotError::kOverflow}; }

constexpr Slot Divide(Opcode opcode, int64_t a, int64_t b) {
  if (b == 0) return {0, SlotError::kDivisionByZero};
  if ((a | b) >> 32 == 0) {  // nearly always, and a 32-bit division takes a fraction of the time
    const auto low_a = static_cast<uint32_t>(a), low_b = static_cast<uint32_t>(b);
    const uint32_t quotient = low_a / low_b, rest = low_a % low_b;
    if (opcode == Opcode::kMod) return {rest};
    return {int64_t{quotient} + (opcode == Opcode::kCeilDiv && rest != 0)};
  }
  // The one quotient that does not fit; the machine's division traps on it, for % as well.
  if (a == std::numeric_limits<int64_t>::min() && b == -1) return Overflow();
  if (opcode == Opcode::kMod) return {a % b};
  int64_t quotient = a / b;
  if (opcode == Opcode::kCeilDiv && a % b != 0 && (a < 0) == (b < 0)) ++quotient;
  return {quotient};
}

// The smallest power of two that is not smaller than a; 1 for everything up to 1.
constexpr Slot NextPow2(int64_t a) {
  if (a > (int64_t{1} << 62)) return Overflow();
  int64_t power = 1;
  while (power < a) power <<= 1;
  return {power};
}

// The smallest n of which 2^n is not smaller than a; 0 for everything up to 1.
constexpr Slot CeilLog2(int64_t a) {
  int64_t power = 0;
  while (power < 63 && (int64_t{1} << power) < a) ++power;
  return {power};
}

constexpr Slot Unary(Opcode opcode, int64_t a) {
  bool lowest = a == std::numeric_limits<int64_t>::min();
  switch (opcode) {
    case Opcode::kNeg:
      return lowest ? Overflow() : Slot{-a};
    case Opcode::kAbs:
      return lowest ? Overflow() : Slot{a < 0 ? -a : a};
    case Opcode::kNextPow2:
      return NextPow2(a);
    case Opcode::kCeilLog2:
      return CeilLog2(a);
    default:
      return {a == 0};  // kNot
  }
}

constexpr Slot Binary(Opcode opcode, int64_t a, int64_t b) {
  int64_t value = 0;
  switch (opcode) {
    case Opcode::kAdd:
      return __builtin_add_overflow(a, b, &value) ? Overflow() : Slot{value};
    case Opcode::kSub:
      return __builtin_sub_overflow(a, b, &value) ? Overflow() : Slot{value};
    case Opcode::kMul:
      return __builtin_mul_overflow(a, b, &value) ? Overflow() : Slot{value};
    case Opcode::kMin:
      return {std::min(a, b)};
    case Opcode::kMax:
      return {std::max(a, b)};
    case Opcode::kEq:
      return {a == b};
    case Opcode::kNe:
      return {a != b};
    case Opcode::kLt:
      return {a < b};
    case Opcode::kLe:
      return {a <= b};
    case Opcode::kGt:
      return {a > b};
    case Opcode::kGe:
      return {a >= b};
    default:
      return Divide(opcode, a, b);  // kDiv, kMod, kCeilDiv
  }
}

}  // namespace arithmetic_internal

// Applies an operator (Arity(opcode) > 0) to its operands, the first pushed first.
constexpr Slot Apply(Opcode opcode, const Slot* operands) {
  const Slot& a = operands[0];
  if (!a.ok()) return a;
  if (opcode == Opcode::kSelect) return a.value != 0 ? operands[1] : operands[2];
  if (opcode == Opcode::kAnd) return a.value == 0 ? a : operands[1];
  if (opcode == Opcode::kOr) return a.value != 0 ? a : operands[1];
  if (Arity(opcode) == 1) return arithmetic_internal::Unary(opcode, a.value);
  const Slot& b = operands[1];
  if (!b.ok()) return b;
  return arithmetic_internal::Binary(opcode, a.value, b.value);
}

}  // namespace kbundle

#endif  // KBUNDLE_ARITHMETIC_H_
