// What only variants of cuBLASLt have in a manifest.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUBLASLT_MANIFEST_H_
#define KBUNDLE_BUILDER_PROVIDER_CUBLASLT_MANIFEST_H_

#include "builder/manifest/tables.h"

namespace kbundle::builder {

// A step with `product`.
void ReadProduct(StepTable& table);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUBLASLT_MANIFEST_H_
