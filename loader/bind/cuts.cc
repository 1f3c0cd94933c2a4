// Which dims belong to a cut is not written down but found: the symbols of the cut are doubled, and
// a dim is divided by it if it doubles too. So it may be any expression (`trans_a ? A2 : A1`), and
// what grows in another way (`ceil_div(N, 128) * 16`) rules the cut out for this problem.
#include "kbundle/cuts.h"

#include <algorithm>

#include "loader/bind/binding.h"
#include "loader/open/index.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

class Cutter {
 public:
  Cutter(const Bundle& bundle, const Problem& problem)
      : op_(OpOf(bundle, problem.op)), problem_(problem) {
    context_.bundle = &bundle;
  }

  void Add(const fb::Cut& row, std::vector<Cut>* cuts) {
    context_.problem = &problem_;
    if (row.when() != nullptr) {
      const Slot holds = RunProgram(context_, *row.when()->program());
      if (!holds.ok() || holds.value == 0) return;
    }
    const size_t list = EllipsisLength(row.symbols()->Get(0));
    for (size_t i = 0; i < std::max<size_t>(list, 1); ++i) {
      Cut cut;
      cut.batch = row.batch();
      if (Make(row, i, &cut)) cuts->push_back(std::move(cut));
    }
  }

 private:
  static int Ellipsis(const fb::Tensor& tensor) {
    for (uint32_t i = 0; i < Count(tensor.dims()); ++i) {
      if (tensor.dims()->Get(i)->ellipsis()) return static_cast<int>(i);
    }
    return -1;
  }

  // How many dims the ellipsis of this symbol stands for here; 0: it is none.
  size_t EllipsisLength(int symbol) const {
    for (uint32_t i = 0; i < Count(op_.operands()); ++i) {
      const fb::Tensor& operand = *op_.operands()->Get(i);
      const int at = Ellipsis(operand);
      if (at < 0 || operand.dims()->Get(static_cast<uint32_t>(at))->symbol() != symbol) continue;
      if (problem_.operands[i].present)
        return problem_.operands[i].dims.size() + 1 - Count(operand.dims());
    }
    return 0;
  }

  // nth: which dim of an ellipsis.
  bool Make(const fb::Cut& row, size_t nth, Cut* cut) {
    doubled_ = problem_;
    bool any = false;
    for (uint16_t symbol : *row.symbols()) {
      int64_t& value = doubled_.symbols[symbol];
      if (value == 0 || (value == 1 && EllipsisLength(symbol) == 0)) continue;
      if (__builtin_mul_overflow(value, int64_t{2}, &value)) return false;
      any = true;
    }
    const bool ok = any && FindAll(op_.operands(), &doubled_.operands, row, nth, &cut->operands) &&
                    FindAll(op_.results(), &doubled_.results, row, nth, &cut->results);
    const auto divided = [](int axis) { return axis >= 0; };
    if (!ok || std::none_of(cut->operands.begin(), cut->operands.end(), divided)) return false;
    for (uint32_t i = 0; i < Count(row.sums()); ++i) {
      const uint16_t result = row.sums()->Get(i);
      if (cut->results[result] < 0 && problem_.results[result].present) cut->sums.push_back(result);
    }
    for (uint32_t i = 0; i < Count(row.once()); ++i) {
      const uint16_t operand = row.once()->Get(i);
      if (cut->operands[operand] < 0 && problem_.operands[operand].present)
        cut->once.push_back(operand);
    }
    return true;
  }

  // The divided dim of each tensor; doubles it in `specs`.
  template <typename Tensors>
  bool FindAll(const Tensors* tensors, std::vector<TensorSpec>* specs, const fb::Cut& row,
               size_t nth, std::vector<int>* axes) {
    for (uint32_t i = 0; i < Count(tensors); ++i) {
      int axis = -1;
      if ((*specs)[i].present && !Find(*tensors->Get(i), (*specs)[i], row, nth, &axis))
        return false;
      if (axis >= 0) (*specs)[i].dims[static_cast<size_t>(axis)] *= 2;
      axes->push_back(axis);
    }
    return true;
  }

  // False: the tensor rules the cut out.
  bool Find(const fb::Tensor& tensor, const TensorSpec& spec, const fb::Cut& row, size_t nth,
            int* axis) {
    size_t at = 0;
    for (uint32_t i = 0; i < Count(tensor.dims()); ++i) {
      const fb::Dim& dim = *tensor.dims()->Get(i);
      if (dim.ellipsis()) {
        if (dim.symbol() == row.symbols()->Get(0) && !Divide(at + nth, spec, axis)) return false;
        at += spec.dims.size() + 1 - Count(tensor.dims());
        continue;
      }
      const int64_t whole = spec.dims[at];
      const int64_t grown = Doubled(dim);
      // Of a list that is joined to one dim only the first divides it into whole pieces.
      const bool pieces = nth == 0 && grown / 2 == whole && grown % 2 == 0;
      if (grown != whole && !(pieces && Divide(at, spec, axis))) return false;
      ++at;
    }
    return true;
  }

  static bool Divide(size_t at, const TensorSpec& spec, int* axis) {
    if (*axis >= 0 || spec.dims[at] <= 1) return false;
    *axis = static_cast<int>(at);
    return true;
  }

  // A dim when the symbols are doubled; -1: it cannot be computed.
  int64_t Doubled(const fb::Dim& dim) {
    if (dim.symbol() >= 0) return doubled_.symbols[static_cast<size_t>(dim.symbol())];
    context_.problem = &doubled_;
    const Slot value = RunProgram(context_, dim.program());
    return value.ok() ? value.value : -1;
  }

  const fb::Op& op_;
  const Problem& problem_;
  Problem doubled_;
  EvalContext context_;
};

}  // namespace

SymbolSet BatchSymbols(const Bundle& bundle, const Problem& problem) {
  const auto* rows = OpOf(bundle, problem.op).independent();
  SymbolSet hidden, found;
  const auto add = [](const fb::Cut& row, SymbolSet* symbols) {
    for (uint16_t symbol : *row.symbols()) symbols->set(symbol);
  };
  for (uint32_t i = 0; i < Count(rows); ++i) {
    if (rows->Get(i)->batch()) add(*rows->Get(i), &hidden);
  }
  const EvalContext context{.bundle = &bundle, .problem = &problem, .hidden = &hidden};
  for (uint32_t i = 0; i < Count(rows); ++i) {
    const fb::Cut& row = *rows->Get(i);
    if (!row.batch()) continue;
    const Slot holds = row.when() ? RunProgram(context, *row.when()->program()) : Slot{1};
    if (!holds.ok() || holds.value != 0) add(row, &found);
  }
  return found;
}

std::vector<Cut> CutsOf(const Bundle& bundle, const Problem& problem) {
  std::vector<Cut> cuts;
  const auto* rows = OpOf(bundle, problem.op).independent();
  if (Count(rows) == 0) return cuts;
  Cutter cutter(bundle, problem);
  for (uint32_t i = 0; i < Count(rows); ++i) cutter.Add(*rows->Get(i), &cuts);
  return cuts;
}

}  // namespace kbundle
