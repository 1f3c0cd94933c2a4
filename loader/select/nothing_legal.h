// The answer where no variant is legal: what each lacks, or what the op has code for.
#ifndef KBUNDLE_LOADER_NOTHING_LEGAL_H_
#define KBUNDLE_LOADER_NOTHING_LEGAL_H_

#include <string>
#include <vector>

#include "loader/select/candidates.h"

namespace kbundle {

struct Rejected {
  std::vector<std::string> reasons;  // by template and reason, once each
  uint32_t variants = 0;
  bool by_policy = false;
  bool by_mode = false;

  void Add(const Bundle& bundle, uint32_t variant, const Legality& legality);
};

Status NothingLegal(const Bundle& bundle, const Problem& problem, const Device& device,
                    const std::vector<RankedTarget>& targets, const Rejected& rejected);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_NOTHING_LEGAL_H_
