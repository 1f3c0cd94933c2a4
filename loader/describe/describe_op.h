// What an op says without its variants, as values: parts of Describe.
#ifndef KBUNDLE_LOADER_DESCRIBE_OP_H_
#define KBUNDLE_LOADER_DESCRIBE_OP_H_

#include "kbundle/bundle_generated.h"
#include "kbundle/description.h"

namespace kbundle {

// All of Detail::kInterface but the name.
void DescribeInterface(const fb::Op& row, OpDescription* op);
void DescribeProblems(const fb::Op& row, OpDescription* op);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_DESCRIBE_OP_H_
