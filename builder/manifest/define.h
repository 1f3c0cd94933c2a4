// `define`: texts, arrays and tables that a manifest says once and means at several places.
//
//   define = { IO = "y, x", ROW = ["y", "x", "i32(K)"] }
//   when   = ["align({IO}) % 16 == 0"]       within a text: a text
//   args   = ["{ROW}", "f32(scale)"]         as an element: all elements of an array
//   tensors = "{TENSORS}"                    as a value: whatever it is
//
// [family.define], an op's and a variant's: the inner one goes before, and a name is looked up
// where it is used, so that a variant which extends another may say what differs by a name. In a
// kernel's or struct's name what nothing defines is left as it is: `{T}` is a type parameter.
#ifndef KBUNDLE_BUILDER_MANIFEST_DEFINE_H_
#define KBUNDLE_BUILDER_MANIFEST_DEFINE_H_

#include "builder/manifest/tree.h"

namespace kbundle::builder {

// Puts in what stands for names, in the whole table `op` of a manifest. family: [family], or null.
// A definition that nothing uses is an error. False where what is left cannot be understood.
bool PutDefinitions(const Node* family, Node* ops, Diagnostics& diagnostics);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_DEFINE_H_
