// Tuned winners: sorted, bounded, and every index in range; a winner belongs to its op and target.
#include <cmath>
#include <tuple>

#include "loader/verify/verify.h"

namespace kbundle {
namespace {

Status CheckTuned(const fb::Index& index, const fb::Tuned& row) {
  KB_RETURN_IF_ERROR(CheckIndex(row.op(), Count(index.ops()), "op"));
  KB_RETURN_IF_ERROR(CheckIndex(row.winner(), Count(index.variants()), "winner"));
  KB_RETURN_IF_ERROR(CheckIndex(row.evidence(), Count(index.evidence()), "evidence"));
  KB_RETURN_IF_ERROR(CheckIndex(row.device(), Count(index.tuned_devices()), "device"));
  if (row.reserved() != 0) return DataLoss("reserved is not 0");
  const fb::Variant& winner = *index.variants()->Get(row.winner());
  if (winner.op() != row.op() || winner.target() != row.target()) {
    return DataLoss("its winner is of another op or target");
  }
  const uint32_t count = Count(index.ops()->Get(row.op())->coordinates());
  if (uint64_t{row.coordinates()} + count > Count(index.coordinates())) {
    return DataLoss(
        fmt::format("coordinates at {} of {}", row.coordinates(), Count(index.coordinates())));
  }
  return Status();
}

Status CheckEvidence(const fb::Index& index, const fb::Evidence& row) {
  for (const auto* text : {row.problem(), row.verdict(), row.reason()}) {
    KB_RETURN_IF_ERROR(CheckText(text, "text"));
  }
  KB_RETURN_IF_ERROR(CheckIndex(row.base(), Count(index.variants()), "default"));
  KB_RETURN_IF_ERROR(Spend(Count(row.times())));
  KB_RETURN_IF_ERROR(CheckAligned(row.times(), "times"));
  constexpr auto kKnown = static_cast<uint64_t>(fb::TunedFlags::ANY);
  for (uint32_t i = 0; i < Count(row.times()); ++i) {
    const fb::TunedTime& time = *row.times()->Get(i);
    KB_RETURN_IF_ERROR(CheckIndex(time.variant(), Count(index.variants()), "candidate"));
    if ((time.flags() & ~kKnown) != 0) {
      return DataLoss(fmt::format("flags {:#x} of a time, known are {:#x}", time.flags(), kKnown));
    }
    for (double number : {time.low(), time.median(), time.high(), time.ratio(), time.band()}) {
      if (!std::isfinite(number) || number < 0)
        return DataLoss(fmt::format("a time of {}", number));
    }
  }
  return Status();
}

}  // namespace

Status VerifyTuned(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckCount(Count(index.tuned()), kMaxTuned, "tuned problems"));
  KB_RETURN_IF_ERROR(CheckCount(Count(index.evidence()), kMaxTuned, "tuned problems' evidence"));
  for (uint32_t i = 0; i < Count(index.coordinates()); ++i) {
    const double number = index.coordinates()->Get(i);
    if (number >= 0 && number < 64) continue;
    return DataLoss(fmt::format("coordinate {}: log2 is {}, must be from 0 to 63", i, number));
  }
  KB_RETURN_IF_ERROR(CheckCount(Count(index.tuned_devices()), kMaxDevices, "tuned devices"));
  for (uint32_t i = 0; i < Count(index.tuned_devices()); ++i) {
    KB_VERIFY(CheckName(index.tuned_devices()->Get(i), "name"), "tuned device {}", i);
  }
  for (uint32_t i = 0; i < Count(index.evidence()); ++i) {
    KB_VERIFY(CheckEvidence(index, *index.evidence()->Get(i)), "evidence {}", i);
  }
  for (uint32_t i = 0; i < Count(index.tuned()); ++i) {
    KB_VERIFY(CheckTuned(index, *index.tuned()->Get(i)), "tuned problem {}", i);
    if (i == 0) continue;
    const auto key = [&](uint32_t k) {
      const fb::Tuned& row = *index.tuned()->Get(k);
      return std::tuple(row.op(), row.target(), row.match(), row.evidence());
    };
    if (!(key(i - 1) < key(i))) {
      return DataLoss(fmt::format("tuned problem {} is not above the one before", i));
    }
  }
  return Status();
}

}  // namespace kbundle
