// An id may name several variants, and a variant several code objects: rather than choose for the
// author, both say what there is to choose from. A file that is no code object like this one is
// replaced only with --force, for "-o main.cc" is quickly typed.
#include "builder/cli/extract.h"

#include <set>
#include <string_view>
#include <vector>

#include "builder/support/files.h"
#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/json.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

// The one variant that the id names.
Result<uint32_t> OneVariant(const Bundle& bundle, const std::string& id) {
  KB_ASSIGN_OR_RETURN(const std::vector<uint32_t> variants, bundle.FindVariants(id));
  if (variants.size() == 1) return variants[0];
  std::string ids;
  for (uint32_t variant : variants) ids += "\n  " + bundle.VariantId(variant);
  return InvalidArgument("extracting from " + bundle.path() + ": \"" + id + "\" names " +
                         std::to_string(variants.size()) + " variants; give one of:" + ids);
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
  const auto bundle = Bundle::Open(file);
  if (!bundle.ok()) return terminal.Fail(bundle.status());
  const Bundle& view = **bundle;
  const auto number = OneVariant(view, variant);
  if (!number.ok()) return terminal.Fail(number.status());
  const auto blob = OneBlob(view, *number, step);
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
  const auto* row = index.templates()->Get(index.variants()->Get(*number)->template_index());
  const std::string read_with = ReadWith(index.blobs()->Get(*blob)->format(),
                                         index.providers()->Get(row->provider())->string_view());
  if (terminal.json()) {
    JsonWriter json;
    json.BeginObject().Key("ok").Bool(true).Key("variant").Text(view.VariantId(*number));
    json.Key("output").Text(output).Key("bytes").Unsigned(bytes->size());
    json.Key("is").Text(read_with.substr(0, read_with.find(';')));
    terminal.Line(json.EndObject().text());
    return kExitOk;
  }
  terminal.Line(view.VariantId(*number) + ": " + Grouped(bytes->size()) + " bytes, " + read_with +
                output);
  return kExitOk;
}

}  // namespace kbundle::builder
