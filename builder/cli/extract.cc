// An id may name several variants, and a variant several code objects: rather than choose for the
// author, both say what there is to choose from. A file that is no code object like this one is
// replaced only with --force, for "-o main.cc" is quickly typed.
#include "builder/cli/extract.h"

#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "builder/library/library.h"
#include "builder/support/files.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/json.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

struct Found {
  Parts::BundlePtr part;
  uint32_t variant;
};

// Of a target that no file here has.
Status NotHere(Status status, const Parts& library, const std::string& id) {
  for (const AbsentPart& part : library.absent()) {
    if (!id.ends_with("@" + part.target.ToString())) continue;
    return NotFound(status.message() + "; code for " + part.target.ToString() +
                    " is not here: " + part.how);
  }
  return status;
}

// The one variant that the id names.
Result<Found> OneVariant(const Parts& library, const std::string& id) {
  std::vector<Found> found;
  Status none;
  for (const Parts::BundlePtr& part : library.all()) {
    const auto variants = part->FindVariants(id);
    if (!variants.ok() && variants.status().code() != StatusCode::kNotFound)
      return variants.status();
    if (!variants.ok() && none.ok()) none = variants.status();
    if (!variants.ok()) continue;
    for (const uint32_t variant : *variants) found.push_back({part, variant});
  }
  if (found.empty()) return NotHere(std::move(none), library, id);
  if (found.size() == 1) return found[0];
  std::string ids;
  for (const Found& one : found) ids += "\n  " + one.part->VariantId(one.variant);
  return InvalidArgument("extracting from " + library.path() + ": \"" + id + "\" names " +
                         std::to_string(found.size()) + " variants; give one of:" + ids);
}

// The blob of the chosen step, or of all steps when they share one.
Result<uint32_t> OneBlob(const Bundle& bundle, uint32_t number, int step) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Variant& variant = *index.variants()->Get(number);
  const auto* steps = index.templates()->Get(variant.template_index())->steps();
  const int count = steps ? static_cast<int>(steps->size()) : 0;
  if (step > count) {
    return InvalidArgument("extracting " + bundle.VariantId(number) + ": --step " +
                           std::to_string(step) + ", but it has " + std::to_string(count));
  }
  std::set<uint32_t> blobs;
  for (int i = 0; i < count; ++i) {
    if (step > 0 && i != step - 1) continue;
    const uint32_t blob =
        index.kernels()->Get(variant.kernels() + static_cast<uint32_t>(i))->blob();
    if (blob != kNoBlob) blobs.insert(blob);
  }
  if (blobs.size() == 1) return *blobs.begin();
  return InvalidArgument("extracting " + bundle.VariantId(number) + ": " +
                         (blobs.empty() ? "there is no code object (a memset or copy)"
                                        : std::to_string(blobs.size()) +
                                              " code objects; choose one with --step 1.." +
                                              std::to_string(count)));
}

const char* ReadWith(uint32_t format, std::string_view provider) {
  switch (static_cast<fb::BlobFormat>(format)) {
    case fb::BlobFormat::Cubin:
      return "cubin; read it with: cuobjdump -sass ";
    case fb::BlobFormat::Fatbin:
      return "fatbin with PTX; read it with: cuobjdump -ptx ";
    case fb::BlobFormat::HostObject:
      return "shared object; read it with: objdump -d ";
    case fb::BlobFormat::Own:
      return provider == "cudnn" ? "execution plan of cuDNN; read it with: strings "
                                 : "algorithm of cuBLASLt; read it with: xxd ";
  }
  return "unknown format; file: ";
}

// What a file must begin with to be replaced. ELF's header tells a cubin; programs and libraries of
// this machine begin like a host kernel, so that is replaced by itself only, as PTX is.
std::string_view Recognized(std::string_view code) {
  constexpr size_t kMachineAt = 18, kHeaderRead = 20;
  constexpr char kCudaMachine = static_cast<char>(190);
  const bool cubin = code.size() > kHeaderRead && code.starts_with("\177ELF") &&
                     code[kMachineAt] == kCudaMachine && code[kMachineAt + 1] == 0;
  return cubin ? code.substr(0, kHeaderRead) : code;
}

}  // namespace

int ExtractCommand::Run(const Terminal& terminal) const {
  if (output == "-" && terminal.json()) {
    return terminal.Usage("extract", "-o - is the code itself: leave out --json, or name a file");
  }
  const auto library = OpenLibrary(file);
  if (!library.ok()) return terminal.Fail(library.status());
  const auto found = OneVariant(**library, variant);
  if (!found.ok()) return terminal.Fail(found.status());
  const auto& [part, number] = *found;
  const Bundle& view = *part;
  const auto blob = OneBlob(view, number, step);
  if (!blob.ok()) return terminal.Fail(blob.status());
  const auto bytes = view.ReadBlob(*blob);
  if (!bytes.ok()) return terminal.Fail(bytes.status());
  const std::string_view code(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  if (output == "-") {
    terminal.Out(code);
    return kExitOk;
  }
  Status written = force ? Status() : CheckOutput(output, Recognized(code), "code object like it");
  if (written.ok()) written = PublishFile(output, code, Durability::kCrashOnly);
  if (!written.ok()) return terminal.Fail(written);
  const fb::Index& index = IndexOf(view);
  const auto* row = index.templates()->Get(index.variants()->Get(number)->template_index());
  const std::string read_with = ReadWith(index.blobs()->Get(*blob)->format(),
                                         index.providers()->Get(row->provider())->string_view());
  if (terminal.json()) {
    JsonWriter json;
    json.BeginObject().Key("ok").Bool(true).Key("variant").Text(view.VariantId(number));
    json.Key("output").Text(output).Key("bytes").Unsigned(bytes->size());
    json.Key("is").Text(read_with.substr(0, read_with.find(';')));
    terminal.Line(json.EndObject().text());
    return kExitOk;
  }
  terminal.Line(view.VariantId(number) + ": " + Grouped(bytes->size()) + " bytes, " + read_with +
                output);
  return kExitOk;
}

}  // namespace kbundle::builder
