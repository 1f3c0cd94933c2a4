// Units are numbered anew, in the order in which the kept variants need them.
#include "builder/compile/keep_variants.h"

#include <map>
#include <utility>

namespace kbundle::builder {

void KeepVariants(std::vector<VariantUse> kept, Work* work) {
  std::vector<Unit> units;
  std::map<uint32_t, uint32_t> moved;
  for (VariantUse& use : kept) {
    for (uint32_t& unit : use.units) {
      if (unit == kNoUnit) continue;
      const auto [place, fresh] = moved.try_emplace(unit, static_cast<uint32_t>(units.size()));
      if (fresh) units.push_back(work->units[unit]);
      unit = place->second;
    }
  }
  work->units = std::move(units);
  work->variants = std::move(kept);
}

}  // namespace kbundle::builder
