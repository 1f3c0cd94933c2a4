// The page is a program of its own (page.html, which is a part of the command) with the bundle as
// JSON inside. What a problem gets is asked of the loader's own Explain, for every listed problem
// and every target of the bundle, so that the page says what a process there would say. In the JSON
// "<" is written as an escape: no text of a bundle can end the element that holds it.
#include "builder/report/page.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "builder/problem/listed.h"
#include "bundle_page.h"
#include "kbundle/describe.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using PageJson = nlohmann::ordered_json;

constexpr std::string_view kPlace = "@BUNDLE@";

// What of a variant is drawn: its code objects by number, each once.
PageJson VariantOnPage(const PageJson& described) {
  PageJson blobs = PageJson::array();
  uint64_t spill = 0;
  for (const PageJson& kernel : described["kernels"]) {
    const auto blob = kernel["blob"].get<int64_t>();
    if (blob >= 0 && std::find(blobs.begin(), blobs.end(), PageJson(blob)) == blobs.end()) {
      blobs.push_back(blob);
    }
    if (kernel.contains("spill_bytes")) {
      spill = std::max(spill, kernel["spill_bytes"].get<uint64_t>());
    }
  }
  return {{"id", described["id"]},
          {"target", described["target"]},
          {"template", described["template"]},
          {"provider", described["provider"]},
          {"registers", described["registers"]},
          {"spill", spill},
          {"blobs", blobs},
          {"ran_on", described["ran_on"]}};
}

// What each listed problem gets on each target that the op has code for.
Result<PageJson> Choices(const Parts& library, uint32_t op, const PageJson& described) {
  std::vector<std::string> targets;
  for (const PageJson& variant : described["variants"]) {
    const auto target = variant["target"].get<std::string>();
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
      targets.push_back(target);
    }
  }
  KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ListedProblems(library.first(), op));
  PageJson out = PageJson::array();
  for (const std::string& target : targets) {
    const Result<Device> device = DeviceFromTargetName(target);
    if (!device.ok()) continue;  // "portable": what runs there has no name yet
    for (size_t i = 0; i < problems.size(); ++i) {
      const PageJson said = PageJson::parse(ExplainJson(library, problems[i], *device));
      PageJson one = {{"problem", i}, {"target", target}, {"chosen", said["chosen"]}};
      one["choice"] = said["choice"];
      if (said.contains("error")) one["error"] = said["error"];
      if (!said["tuned"].is_null()) one["tuned"] = said["tuned"];
      out.push_back(std::move(one));
    }
  }
  return out;
}

Result<PageJson> OpOnPage(const Parts& library, uint32_t number, const PageJson& described) {
  PageJson out = {{"name", described["name"]},
                  {"summary", described["summary"]},
                  {"interface", described["interface"]},
                  {"types", described["types"]},
                  {"operands", described["operands"]},
                  {"results", described["results"]},
                  {"attributes", described["attributes"]}};
  out["variants"] = PageJson::array();
  for (const PageJson& variant : described["variants"])
    out["variants"].push_back(VariantOnPage(variant));
  out["problems"] = PageJson::array();
  for (const PageJson& problem : described["problems"]) out["problems"].push_back(problem["text"]);
  KB_ASSIGN_OR_RETURN(out["choices"], Choices(library, number, described));
  return out;
}

}  // namespace

Result<std::string> BundlePage(const Parts& library) {
  KB_ASSIGN_OR_RETURN(const std::string text, DescribeJson(library, "", Detail::kWhole));
  const PageJson described = PageJson::parse(text);
  PageJson data;
  for (const char* key :
       {"name", "content_id", "file_bytes", "provenance", "targets", "devices", "absent"}) {
    data[key] = described[key];
  }
  data["blobs"] = PageJson::array();
  for (const PageJson& blob : described["blobs"]) {
    data["blobs"].push_back({{"format", blob["format"]},
                             {"stored", blob["stored_bytes"]},
                             {"raw", blob["bytes"]},
                             {"base", blob["base"]}});
  }
  data["ops"] = PageJson::array();
  for (uint32_t i = 0; i < described["ops"].size(); ++i) {
    KB_ASSIGN_OR_RETURN(PageJson op, OpOnPage(library, i, described["ops"][i]));
    data["ops"].push_back(std::move(op));
  }
  std::string safe;
  for (const char c : data.dump()) c == '<' ? safe += "\\u003c" : safe += c;
  std::string page = kBundlePage;
  return page.replace(page.find(kPlace), kPlace.size(), safe);
}

}  // namespace kbundle::builder
