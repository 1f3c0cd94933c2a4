// Along which dims a problem may be cut into equal parts that are problems of their own.
#ifndef KBUNDLE_CUTS_H_
#define KBUNDLE_CUTS_H_

#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/problem.h"

namespace kbundle {

struct Cut {
  std::vector<int> operands, results;  // the dim of each that is divided; -1: parts have it whole
  std::vector<int> sums;               // results that are the sum of the parts'
  std::vector<int> once;               // operands that all parts but one get as zeros
  bool batch = false;                  // along it lie the items of a batch
};

// The symbols along which the items of a batch lie: of every cut that is for batches, but for those
// whose condition fails whatever the size of the batch. So the answer does not depend on that size.
SymbolSet BatchSymbols(const Bundle& bundle, const Problem& problem);

// In the manifest's order, without those whose condition fails or whose dims have one element.
std::vector<Cut> CutsOf(const Bundle& bundle, const Problem& problem);

}  // namespace kbundle

#endif  // KBUNDLE_CUTS_H_
