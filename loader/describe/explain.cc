// What is chosen for a problem and why, as JSON.
#include "kbundle/bundle_generated.h"
#include "kbundle/describe.h"
#include "kbundle/format.h"
#include "kbundle/json.h"
#include "loader/open/index.h"
#include "loader/provider/provider.h"
#include "loader/resolve/launch_json.h"
#include "loader/resolve/resolve.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

bool Has(uint64_t flags, fb::TunedFlags flag) { return (flags & static_cast<uint64_t>(flag)) != 0; }

// The tuned problem that decided, and what was measured there.
void WriteTuned(JsonWriter& json, const Bundle& bundle, uint32_t number) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Tuned& row = *index.tuned()->Get(number);
  const fb::Evidence& evidence = *index.evidence()->Get(row.evidence());
  json.BeginObject().Key("problem").Text(View(evidence.problem()));
  json.Key("device").Text(View(index.tuned_devices()->Get(row.device())));
  json.Key("winner").Text(bundle.VariantId(row.winner()));
  json.Key("default").Text(bundle.VariantId(evidence.base()));
  json.Key("verdict").Text(View(evidence.verdict())).Key("reason").Text(View(evidence.reason()));
  json.Key("times").BeginArray();
  for (uint32_t i = 0; evidence.times() != nullptr && i < evidence.times()->size(); ++i) {
    const fb::TunedTime& time = *evidence.times()->Get(i);
    json.BeginObject().Key("id").Text(bundle.VariantId(time.variant()));
    json.Key("us").BeginArray();
    json.Number(time.low()).Number(time.median()).Number(time.high()).EndArray();
    json.Key("versus_default").BeginArray().Number(time.ratio()).Number(time.band()).EndArray();
    json.Key("dropped").Bool(Has(time.flags(), fb::TunedFlags::Dropped));
    json.Key("failed").Bool(Has(time.flags(), fb::TunedFlags::Failed)).EndObject();
  }
  json.EndArray().EndObject();
}

// The value of "launch" (kbundle_c.h, kb_explain): an object, with "error" where the variant cannot
// be launched for this problem. Needs no device.
void WriteLaunch(JsonWriter& json, const Bundle& bundle, const Problem& problem,
                 const Device& device, uint32_t variant, int64_t alignment) {
  json.BeginObject().Key("alignment").Int(alignment).Key("sm_count").Int(device.sm_count);
  const Result<Resolution> resolution = Resolve(bundle, problem, device, variant, alignment);
  if (resolution.ok()) {
    LaunchJson(json, bundle, problem, variant).Write(*resolution);
  } else {
    json.Key("error").Text(resolution.status().message());
  }
  json.EndObject();
}

}  // namespace

std::string ExplainJson(const Bundle& bundle, const Problem& problem, const Device& device,
                        const SelectOptions& options) {
  JsonWriter json;
  json.BeginObject().Key("problem").Text(problem.ToString());
  json.Key("target").Text(device.ToString()).Key("chosen");
  const Result<Selected> chosen = SelectFirstLaunchable(bundle, problem, device, options);
  if (chosen.ok()) {
    json.Text(bundle.VariantId(chosen->variant)).Key("choice").Text(ChoiceName(chosen->choice));
    json.Key("workspace_bytes");
    const auto bytes = WorkspaceBytes(bundle, problem, chosen->variant, options.alignment);
    bytes.ok() ? json.Int(*bytes) : json.Null();
    const std::string_view needs = ProviderOf(IndexOf(bundle), chosen->variant).needs();
    json.Key("needs");
    needs.empty() ? json.Null() : json.Text(needs);
    WriteLaunch(json.Key("launch"), bundle, problem, device, chosen->variant, options.alignment);
  } else {
    json.Null()
        .Key("choice")
        .Null()
        .Key("workspace_bytes")
        .Null()
        .Key("needs")
        .Null()
        .Key("launch")
        .Null();
    json.Key("error").Text(chosen.status().message());
  }
  json.Key("tuned");
  const int64_t row = chosen.ok() ? chosen->tuned : -1;
  row < 0 ? void(json.Null()) : WriteTuned(json, bundle, static_cast<uint32_t>(row));
  json.Key("candidates").BeginArray();
  for (const Verdict& verdict : Explain(bundle, problem, device, options)) {
    json.BeginObject().Key("id").Text(bundle.VariantId(verdict.variant));
    json.Key("legal").Bool(verdict.legal).Key("reason").Text(verdict.reason).EndObject();
  }
  json.EndArray().EndObject();
  return std::move(json).text();
}

}  // namespace kbundle
