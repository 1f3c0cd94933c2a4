// Each compiler says its own row, and only versions and digests: these are bytes of the bundle.
#include "builder/pack/provenance.h"

#include <flatbuffers/base.h>
#include <fmt/format.h>

#include "builder/pack/frames.h"

namespace kbundle::builder {
Result<std::vector<std::pair<std::string, std::string>>> Provenance(const CompileContext& context,
                                                                    ToolDigests* digests) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"kbundle", KB_VERSION},
      {"zstd", ZstdVersion()},
      {"flatbuffers", fmt::format("{}.{}.{}", FLATBUFFERS_VERSION_MAJOR, FLATBUFFERS_VERSION_MINOR,
                                  FLATBUFFERS_VERSION_REVISION)}};
  for (const auto& compiler : context.compilers) {
    KB_ASSIGN_OR_RETURN(auto row, compiler->Provenance(context.tools, digests));
    if (row) rows.push_back(std::move(*row));
  }
  return rows;
}

}  // namespace kbundle::builder
