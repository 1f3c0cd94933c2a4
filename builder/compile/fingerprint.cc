// Everything that changes what a launch does goes in, in a fixed order and with its length;
// programs by their text, so that a record outlives a change of their code's encoding. Names of
// files, labels and the order of variants stay out.
#include "builder/compile/fingerprint.h"

#include "builder/compile/fingerprint_text.h"
#include "builder/provider/provider.h"
#include "kbundle/sha256.h"

namespace kbundle::builder {
namespace {

void AddMap(const TensorMap& map, FingerprintText* text) {
  for (int number : {map.tensor, map.type.param, static_cast<int>(map.type.dtype), map.swizzle,
                     map.interleave, map.l2, map.fill}) {
    text->Add(std::to_string(number));
  }
  for (const auto* programs : {&map.dims, &map.strides, &map.box, &map.element_strides}) {
    text->Add(*programs);
  }
}

void AddStep(const Step& step, const Provider& provider, FingerprintText* text) {
  const int kind =
      step.kind == StepKind::kOwn ? provider.own_step_number() : static_cast<int>(step.kind);
  text->Add(std::to_string(kind) + (step.programmatic ? "p" : "") + std::to_string(step.value));
  text->Add(step.when ? step.when->text : "");
  for (const auto* programs : {&step.grid, &step.block, &step.cluster}) text->Add(*programs);
  for (const Program* program : {&step.shared, &step.range, &step.grain, &step.bytes}) {
    text->Add(program->text);
  }
  for (const Arg& arg : step.args) text->Add(arg);
  text->Add(step.target);
  text->Add(step.source);
  for (const TensorMap& map : step.tensor_maps) AddMap(map, text);
  for (const StructArg& arg : step.structs) {
    text->Add(arg.bytes);
    for (const StructArg::Field& field : arg.fields) {
      text->Add(std::to_string(field.offset));
      text->Add(field.arg);
    }
  }
  if (step.own) provider.AddToFingerprint(step, text);
}

}  // namespace

std::string Fingerprint(const Work& work, const VariantUse& use,
                        const std::vector<Object>& objects) {
  const Template& variant = work.ops[use.op].op->templates[use.template_index];
  const Template::Point& point = variant.points[use.point];
  FingerprintText text;
  for (const uint32_t unit : use.units) {
    if (unit == kNoUnit) continue;
    text.Add(ToHex(objects[unit].sha256));
  }
  for (const std::string& kernel : use.kernels) text.Add(kernel);
  for (size_t i = 0; i < point.tunables.size(); ++i) {
    text.Add(variant.tunables[i] + "=" + std::to_string(point.tunables[i]));
  }
  for (const NamedProgram& let : variant.lets) text.Add(let.name + "=" + let.program.text);
  for (const Region& region : variant.regions) text.Add(region.name + "=" + region.text);
  for (const Step& step : variant.steps) AddStep(step, *variant.provider, &text);
  const std::string& bytes = text.bytes();
  return ToHex(Sha256Of(bytes.data(), bytes.size())).substr(0, 16);
}

}  // namespace kbundle::builder
