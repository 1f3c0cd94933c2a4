// Are the bytes of an index a sound FlatBuffer? Asked of the whole at once, or of what every reader
// looks at (the outline) and then of each op as it is wanted.
#ifndef KBUNDLE_LOADER_VERIFY_STRUCTURE_H_
#define KBUNDLE_LOADER_VERIFY_STRUCTURE_H_

#include <cstdint>

#include "kbundle/bundle_generated.h"
#include "kbundle/status.h"
#include "loader/verify/index_pages.h"

namespace kbundle {

// Borrows the bytes. For one check in one thread: it counts the tables that it has seen, and
// refuses more than FORMAT.md (3) allows for the size. Errors are kDataLoss.
class Structure {
 public:
  explicit Structure(const IndexPages& pages);
  // Of one op, in an index whose outline was checked: where `part` is not null, its tables lie in
  // the part's bytes, which are there.
  Structure(const IndexPages& pages, const fb::Part* part);

  // One of these first; afterwards index() may be read, as far as it was checked.
  Status CheckWhole();
  // All but what is in an op's table beside name and templates' range, in templates, in symbols and
  // in evidence; where there are parts, all of an op's table.
  Status CheckOutline();
  const fb::Index& index() const { return *fb::GetIndex(pages_.bytes()); }
  const IndexPages& pages() const { return pages_; }
  bool whole() const { return whole_; }

  // What the outline leaves out; nothing to do where the whole was checked.
  Status CheckOp(const fb::Op& op);
  Status CheckTemplate(const fb::Template& row);
  Status CheckChoice(const fb::Template& row);  // of its steps no more than their kinds
  // By its address, which may be no multiple of a string's: a reference to it would be undefined.
  Status CheckString(const flatbuffers::String* text);
  Status CheckEvidence(const fb::Evidence& row);

 private:
  using Rules = flatbuffers::Vector<flatbuffers::Offset<fb::Rule>>;

  Status CheckRoot() const;
  bool IsChoice(const fb::Template& row);
  bool IsOutlineSound(flatbuffers::Verifier& outline) const;
  Status CheckLongVectors(const flatbuffers::Verifier& outline);

  const IndexPages& pages_;
  flatbuffers::Verifier verifier_;
  bool whole_ = false;
  const Rules *lets_ = nullptr, *when_ = nullptr;  // of the last choice, good
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_VERIFY_STRUCTURE_H_
