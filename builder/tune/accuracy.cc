// Results may be tens of millions of elements: 8 and 16 bit floats are looked up in a table, a
// spacing is made from the exponent's bits, and rows are shared among threads. Of equally wrong
// elements the first is told, so that the report does not depend on threads.
#include "builder/tune/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include "builder/support/schedule.h"

namespace kbundle::builder {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kChunk = 1 << 18;  // elements that one thread takes at a time

// Of IEEE-like formats with `exponent` and `mantissa` bits; `fn`: no infinities, one NaN pattern.
struct Small {
  int exponent, mantissa, bias;
  bool fn;
};

double Decode(const Small& format, uint32_t bits) {
  const uint32_t mantissa_mask = (1u << format.mantissa) - 1;
  const int top = (1 << format.exponent) - 1;
  const int exponent = static_cast<int>(bits >> format.mantissa) & top;
  const uint32_t mantissa = bits & mantissa_mask;
  const bool negative = (bits >> (format.exponent + format.mantissa)) & 1;
  double value;
  if (exponent == top && (!format.fn || mantissa == mantissa_mask)) {
    value = mantissa == 0 ? kInfinity : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - format.bias - format.mantissa);
  } else {
    value = std::ldexp(static_cast<double>(mantissa | (1u << format.mantissa)),
                       exponent - format.bias - format.mantissa);
  }
  return negative ? -value : value;
}

// e8m0 is a bare power of two.
double DecodeScale(uint32_t bits) {
  return bits == 255 ? std::numeric_limits<double>::quiet_NaN()
                     : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

std::vector<float> Table(DType dtype) {
  const auto make = [](size_t size, auto decode) {
    std::vector<float> table(size);
    for (uint32_t i = 0; i < size; ++i) table[i] = static_cast<float>(decode(i));
    return table;
  };
  switch (dtype) {
    case DType::kF16:
      return make(65536, [](uint32_t bits) { return Decode({5, 10, 15, false}, bits); });
    case DType::kBF16:
      return make(65536, [](uint32_t bits) { return Decode({8, 7, 127, false}, bits); });
    case DType::kE4M3:
      return make(256, [](uint32_t bits) { return Decode({4, 3, 7, true}, bits); });
    case DType::kE5M2:
      return make(256, [](uint32_t bits) { return Decode({5, 2, 15, false}, bits); });
    default:
      return make(256, DecodeScale);
  }
}

// Mantissa bits, the exponent of the smallest normal number, the largest finite value.
struct Limits {
  int mantissa, min_exponent;
  double largest;
};

Limits LimitsOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {10, -14, 65504.0};
    case DType::kBF16:
      return {7, -126, 3.3895313892515355e38};
    case DType::kF32:
      return {23, -126, std::numeric_limits<float>::max()};
    case DType::kE4M3:
      return {3, -6, 448.0};
    case DType::kE5M2:
      return {2, -14, 57344.0};
    case DType::kE8M0:
      return {0, -127, std::ldexp(1.0, 127)};
    default:
      return {52, -1022, std::numeric_limits<double>::max()};
  }
}

// The distance between neighbouring values of the dtype around `value`.
double Spacing(double value, const Limits& limits) {
  const int exponent = static_cast<int>((std::bit_cast<uint64_t>(value) >> 52) & 0x7ff) - 1023;
  return std::bit_cast<double>(
      static_cast<uint64_t>(std::max(exponent, limits.min_exponent) - limits.mantissa + 1023)
      << 52);
}

class FloatJudge {
 public:
  FloatJudge(DType dtype, const Allowed& allowed)
      : limits_(LimitsOf(dtype)),
        overflow_(limits_.largest * (1 + std::ldexp(1.0, -12))),
        ulps_(allowed.ulps),
        relative_(allowed.relative),
        wide_(dtype == DType::kF64) {}

  template <typename Value>
  void Rows(const Value& value, const double* wanted, int64_t begin, int64_t end,
            int64_t row_length, Judgement* judgement) const {
    for (int64_t row = begin; row < end; row += row_length) {
      double largest = 0;
      if (relative_ > 0) {
        for (int64_t i = row; i < row + row_length; ++i) {
          const double size = std::abs(wanted[i]);
          if (size <= overflow_ && size > largest) largest = size;
        }
        largest = relative_ * std::max(largest, 1.17549435e-38);
      }
      for (int64_t i = row; i < row + row_length; ++i)
        One(value(i), wanted[i], largest, i, judgement);
    }
  }

 private:
  void One(double found, double wanted, double row_allows, int64_t i, Judgement* worst) const {
    if (!wide_ && std::abs(wanted) > overflow_) wanted = std::copysign(kInfinity, wanted);
    double ratio;
    if (std::isfinite(wanted) && std::isfinite(found)) {
      const double error = std::abs(found - wanted);
      if (error == 0) return;
      const double ulps = std::max(ulps_, relative_ > 0 ? 1.0 : 0.0);
      double allowed = row_allows;
      if (ulps > 0)
        allowed =
            std::max(allowed, ulps * (wide_ ? WideSpacing(wanted) : Spacing(wanted, limits_)));
      ratio = allowed > 0 ? error / allowed : kInfinity;
    } else if ((std::isnan(found) && std::isnan(wanted)) || found == wanted) {
      return;
    } else {
      ratio = kInfinity;
    }
    if (ratio > worst->worst) *worst = {ratio, i, found, wanted};
  }

  static double WideSpacing(double value) {
    return std::nextafter(std::abs(value), kInfinity) - std::abs(value);
  }

  const Limits limits_;
  const double overflow_, ulps_, relative_;
  const bool wide_;
};

Judgement JudgeFloats(DType dtype, const FloatJudge& judge, const void* found, const double* wanted,
                      int64_t begin, int64_t end, int64_t row_length, const float* table) {
  Judgement judgement;
  const auto rows = [&](const auto& value) {
    judge.Rows(value, wanted, begin, end, row_length, &judgement);
  };
  if (dtype == DType::kF32) {
    rows([p = static_cast<const float*>(found)](int64_t i) { return static_cast<double>(p[i]); });
  } else if (dtype == DType::kF64) {
    rows([p = static_cast<const double*>(found)](int64_t i) { return p[i]; });
  } else if (SizeOf(dtype) == 2) {
    rows([p = static_cast<const uint16_t*>(found), table](int64_t i) {
      return static_cast<double>(table[p[i]]);
    });
  } else {
    rows([p = static_cast<const uint8_t*>(found), table](int64_t i) {
      return static_cast<double>(table[p[i]]);
    });
  }
  return judgement;
}

double IntegerAt(DType dtype, const void* values, int64_t i) {
  const auto at = [&](auto type) {
    return static_cast<double>(static_cast<const decltype(type)*>(values)[i]);
  };
  switch (dtype) {
    case DType::kI8:
      return at(int8_t{});
    case DType::kU16:
      return at(uint16_t{});
    case DType::kI16:
      return at(int16_t{});
    case DType::kU32:
      return at(uint32_t{});
    case DType::kI32:
      return at(int32_t{});
    case DType::kU64:
      return at(uint64_t{});
    case DType::kI64:
      return at(int64_t{});
    default:
      return at(uint8_t{});
  }
}

Judgement JudgeIntegers(DType dtype, const void* found, const void* wanted, int64_t begin,
                        int64_t end) {
  const int64_t size = SizeOf(dtype);
  const char* a = static_cast<const char*>(found);
  const char* b = static_cast<const char*>(wanted);
  if (std::memcmp(a + begin * size, b + begin * size, static_cast<size_t>((end - begin) * size)) ==
      0) {
    return {};
  }
  for (int64_t i = begin; i < end; ++i) {
    if (std::memcmp(a + i * size, b + i * size, static_cast<size_t>(size)) == 0) continue;
    return {kInfinity, i, IntegerAt(dtype, found, i), IntegerAt(dtype, wanted, i)};
  }
  return {};
}

}  // namespace

bool IsFloat(DType dtype) { return dtype >= DType::kF16; }

std::string Judgement::ToString() const {
  if (at < 0) return "equal";
  const std::string how =
      std::isfinite(worst) ? fmt::format("{:.3g} times the tolerance", worst) : "wrong";
  return fmt::format("{} at element {}: {} for {}", how, at, found, wanted);
}

Judgement Judge(DType dtype, const void* found, const void* wanted, int64_t count,
                int64_t row_length, const Allowed& allowed, int threads, int64_t first) {
  row_length = std::max<int64_t>(1, std::min(row_length, count));
  const int64_t rows = count / row_length;
  const int64_t step = std::max<int64_t>(1, kChunk / row_length);
  const bool floats = IsFloat(dtype);
  const std::vector<float> table =
      floats && SizeOf(dtype) < 4 ? Table(dtype) : std::vector<float>();
  const FloatJudge judge(dtype, allowed);
  Judgement worst;
  std::mutex mutex;
  std::atomic<bool> stop{false};
  RunJobs(static_cast<int>((rows + step - 1) / step), threads, stop, [&](int job) {
    const int64_t begin = job * step * row_length;
    const int64_t end = std::min(rows, (job + 1) * step) * row_length;
    const Judgement part =
        floats ? JudgeFloats(dtype, judge, found, static_cast<const double*>(wanted), begin, end,
                             row_length, table.data())
               : JudgeIntegers(dtype, found, wanted, begin, end);
    const std::lock_guard<std::mutex> lock(mutex);
    // The first of equals, whichever thread came first.
    if (part.worst > worst.worst ||
        (part.worst == worst.worst && part.at >= 0 && part.at < worst.at))
      worst = part;
  });
  if (worst.at >= 0) worst.at += first;
  return worst;
}

}  // namespace kbundle::builder
