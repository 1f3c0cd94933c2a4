// A resolution as JSON: what `kbundle explain --json` prints of a launch. Providers add the keys of
// their own steps.
#ifndef KBUNDLE_LOADER_LAUNCH_JSON_H_
#define KBUNDLE_LOADER_LAUNCH_JSON_H_

#include <cstddef>
#include <span>

#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/json.h"
#include "kbundle/problem.h"
#include "loader/resolve/resolve.h"

namespace kbundle {

// Borrows everything; for one variant.
class LaunchJson {
 public:
  LaunchJson(JsonWriter& json, const Bundle& bundle, const Problem& problem, uint32_t variant);

  // Keys "workspace" and "steps" of an object that is open.
  void Write(const Resolution& resolution);

  // ---- For providers ----
  JsonWriter& writer() { return json_; }
  // null, or where it points and how many bytes behind that.
  void Write(const char* key, const Pointer& pointer);
  void WriteArgs(const ResolvedStep& step);

 private:
  void WriteStep(const ResolvedStep& step);
  void WriteKernel(const ResolvedStep& step);
  void WriteStruct(const fb::Struct& row, const ResolvedStep& step, const ResolvedArg& resolved);
  void WriteConstant(const fb::Arg& arg, std::span<const std::byte> bytes);
  void WriteTensorMap(const ResolvedTensorMap& map);

  JsonWriter& json_;
  const fb::Op& op_;
  const fb::Template& template_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_LAUNCH_JSON_H_
