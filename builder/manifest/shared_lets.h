// `let` of [family] and of ops: expressions by a name, said once for all variants.
//
// A variant gets those that it uses, as if it had written them; its own go before an op's, an op's
// before the family's. In an op's interface (shapes, `bound`, `when` of a result, `require`,
// `score_mods`) the name of an op's let stands for the expression's text.
#ifndef KBUNDLE_BUILDER_MANIFEST_SHARED_LETS_H_
#define KBUNDLE_BUILDER_MANIFEST_SHARED_LETS_H_

#include "builder/manifest/tree.h"

namespace kbundle::builder {

// In the whole table `op` of a manifest. family: [family], or null. A let that nothing uses is an
// error.
void ShareLets(const Node* family, Node* ops, Diagnostics& diagnostics);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_SHARED_LETS_H_
