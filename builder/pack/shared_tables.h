// The tables of one op as bytes that lie side by side, in which equal tables stand once.
#ifndef KBUNDLE_BUILDER_PACK_SHARED_TABLES_H_
#define KBUNDLE_BUILDER_PACK_SHARED_TABLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kbundle/bundle_generated.h"

namespace kbundle::builder {

// What fb::Op::Pack and its like would write, with one table where several rules, arguments,
// structs or parts of problems say the same; `share` false: just what they write.
class SharedTables {
 public:
  explicit SharedTables(bool share);
  ~SharedTables();

  // Each writes, and says how far from the end of the bytes it stands.
  uint32_t Add(const fb::OpT& op);
  uint32_t Add(const fb::TemplateT& row);
  uint32_t Add(const fb::EvidenceT& row);

  // All so far, a multiple of 8. FlatBuffers refer by distance: the bytes mean the same wherever
  // they stand at a multiple of 8. Until the next Add.
  std::string_view Bytes();

 private:
  class Writer;
  std::unique_ptr<Writer> writer_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_SHARED_TABLES_H_
