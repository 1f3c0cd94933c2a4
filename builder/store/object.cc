// Layout: length of the facts (8 bytes, little-endian), facts as JSON, code.
#include "builder/store/object.h"

#include <nlohmann/json.hpp>

#include "builder/support/elf.h"
#include "builder/support/json_text.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Json KernelsJson(const std::vector<KernelInfo>& kernels) {
  Json rows = Json::array();
  for (const KernelInfo& kernel : kernels) {
    rows.push_back({{"kernel", kernel.kernel},
                    {"symbol", kernel.symbol},
                    {"params", kernel.param_bytes},
                    {"registers", kernel.registers},
                    {"spill", kernel.spill_bytes},
                    {"shared", kernel.static_shared},
                    {"dynamic_shared", kernel.dynamic_shared},
                    {"threads", kernel.threads},
                    {"workspace", kernel.workspace}});
  }
  return rows;
}

Object FromJson(const Json& facts) {
  Object object;
  object.format = facts.at("format").get<ObjectFormat>();
  object.log = facts.at("log").get<std::string>();
  for (const Json& row : facts.at("kernels")) {
    object.kernels.push_back({row.at("kernel"), row.at("symbol"),
                              row.at("params").get<std::vector<uint32_t>>(), row.at("registers"),
                              row.at("spill"), row.at("shared"), row.value("dynamic_shared", 0u),
                              row.value("threads", 0u), row.value("workspace", 0u)});
  }
  object.learned = facts.value("learned", "");
  for (const Json& row : facts.at("reads")) object.reads.push_back({row.at(0), row.at(1)});
  return object;
}

}  // namespace

std::string Serialize(const Object& object) {
  Json reads = Json::array();
  for (const Object::Read& read : object.reads) reads.push_back({read.path, read.sha256});
  Json facts = {{"format", object.format},
                {"log", object.log},
                {"kernels", KernelsJson(object.kernels)},
                {"reads", std::move(reads)}};
  if (!object.learned.empty()) facts["learned"] = object.learned;
  const std::string text = JsonText(facts);
  return KeyWriter().Text(text).bytes() + object.code;
}

Result<Object> ParseObject(std::string_view bytes) {
  if (bytes.size() < 8) return DataLoss("object is cut");
  const uint64_t size = LoadLittle<uint64_t>(bytes, 0);
  bytes.remove_prefix(8);
  if (size > bytes.size()) return DataLoss("object is cut");
  const Json facts = Json::parse(bytes.substr(0, size), nullptr, false);
  if (facts.is_discarded()) return DataLoss("an object's facts are no JSON");
  try {
    Object object = FromJson(facts);
    object.code = bytes.substr(size);
    return object;
  } catch (const Json::exception&) {  // a fact is missing or of another type
    return DataLoss("an object's facts are incomplete");
  }
}

}  // namespace kbundle::builder
