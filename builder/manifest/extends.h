// `extends`: an op or a variant says only what differs from another.
//
//   [op.backward]                       [[op.forward.variant]]
//   extends = "forward"                 extends = "flash"            of this op
//                                       extends = "forward.flash"    of another
//                                       extends = "forward.*"        all of another, `without` some
//
// What stands here goes before what stands there, key by key; `let`, `define` and `workspace` are
// joined name by name. An op inherits no variants and no problems. An op or a variant with
// `abstract = true` is there for others alone.
#ifndef KBUNDLE_BUILDER_MANIFEST_EXTENDS_H_
#define KBUNDLE_BUILDER_MANIFEST_EXTENDS_H_

#include "builder/manifest/tree.h"

namespace kbundle::builder {

// Writes out what ops (the table `op` of a manifest) and their variants inherit. Nodes keep their
// places, with a link to the `extends` that brought them.
void ResolveExtends(Node* ops, Diagnostics& diagnostics);

// Whether the table of an op or a variant says abstract = true.
bool IsAbstract(const Node& table);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_EXTENDS_H_
