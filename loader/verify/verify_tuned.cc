// Tuned winners: sorted, bounded, and every index in range; a winner belongs to its op and target.
#include <cmath>
#include <tuple>

#include "loader/support/rows_of_op.h"
#include "loader/verify/op_rows.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

Status CheckCoordinates(const fb::Index& index, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i) {
    const double number = index.coordinates()->Get(i);
    if (number >= 0 && number < 64) continue;
    return DataLoss(fmt::format("coordinate {}: log2 is {}, must be from 0 to 63", i, number));
  }
  return Status();
}

Status CheckOrder(const fb::Index& index, const RowRange& range) {
  const auto key = [&index](uint32_t k) {
    const fb::Tuned& row = *index.tuned()->Get(k);
    return std::tuple(row.op(), row.target(), row.match(), row.evidence());
  };
  for (uint32_t i = range.first; i < range.end; ++i) {
    KB_VERIFY(CheckIndex(index.tuned()->Get(i)->op(), Count(index.ops()), "op"), "tuned problem {}",
              i);
    if (i > range.first && !(key(i - 1) < key(i))) {
      return DataLoss(fmt::format("tuned problem {} is not above the one before", i));
    }
  }
  return Status();
}

// own: the variants of the row's op. That another row says that it is the op's is no proof of it.
Status CheckTuned(const OpRows& rows, const RowRange& own, const fb::Tuned& row) {
  const fb::Index& index = rows.index;
  if (row.op() != rows.number) return DataLoss(fmt::format("it says op {}", row.op()));
  KB_RETURN_IF_ERROR(CheckIndex(row.winner(), Count(index.variants()), "winner"));
  KB_RETURN_IF_ERROR(CheckIndex(row.evidence(), Count(index.evidence()), "evidence"));
  KB_RETURN_IF_ERROR(CheckIndex(row.device(), Count(index.tuned_devices()), "device"));
  if (row.reserved() != 0) return DataLoss("reserved is not 0");
  if (row.winner() < own.first || row.winner() >= own.end ||
      index.variants()->Get(row.winner())->target() != row.target()) {
    return DataLoss("its winner is of another op or target");
  }
  const uint32_t count = Count(rows.op.coordinates());
  if (uint64_t{row.coordinates()} + count > Count(index.coordinates())) {
    return DataLoss(
        fmt::format("coordinates at {} of {}", row.coordinates(), Count(index.coordinates())));
  }
  if (!rows.pages.paged()) return Status();
  KB_RETURN_IF_ERROR(NeedRows(rows.pages, index.coordinates(), row.coordinates(), count));
  return CheckCoordinates(index, row.coordinates(), count);
}

}  // namespace

Status VerifyEvidence(const fb::Evidence& row, const fb::Index& index) {
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

Status VerifyTunedDevices(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckCount(Count(index.tuned()), kMaxTuned, "tuned problems"));
  KB_RETURN_IF_ERROR(CheckCount(Count(index.evidence()), kMaxTuned, "tuned problems' evidence"));
  KB_RETURN_IF_ERROR(CheckCount(Count(index.tuned_devices()), kMaxDevices, "tuned devices"));
  for (uint32_t i = 0; i < Count(index.tuned_devices()); ++i) {
    KB_VERIFY(CheckName(index.tuned_devices()->Get(i), "name"), "tuned device {}", i);
  }
  return Status();
}

Status VerifyTuned(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckCoordinates(index, 0, Count(index.coordinates())));
  return CheckOrder(index, {0, Count(index.tuned())});
}

Status VerifyTunedOf(const OpRows& rows) {
  const fb::Index& index = rows.index;
  const RowRange range = TunedRowsOfOp(index, rows.number);
  const RowRange own = VariantRowsOfOp(index, rows.number);
  KB_RETURN_IF_ERROR(NeedRows(rows.pages, index.tuned(), range.first, range.end - range.first));
  if (rows.part != nullptr) KB_RETURN_IF_ERROR(CheckOrder(index, range));
  for (uint32_t i = range.first; i < range.end; ++i) {
    const fb::Tuned& row = *index.tuned()->Get(i);
    KB_VERIFY(CheckTuned(rows, own, row), "tuned problem {}", i);
    if (rows.structure.whole()) continue;  // all evidence was looked at
    KB_RETURN_IF_ERROR(NeedRows(rows.pages, index.evidence(), row.evidence(), 1));
    const fb::Evidence& evidence = *index.evidence()->Get(row.evidence());
    KB_VERIFY(rows.structure.CheckEvidence(evidence), "evidence {}", row.evidence());
    KB_VERIFY(VerifyEvidence(evidence, index), "evidence {}", row.evidence());
  }
  return Status();
}

}  // namespace kbundle
