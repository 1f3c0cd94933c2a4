#include "support/part_maker.h"

#include <memory>
#include <utility>

#include "kbundle/target.h"
#include "support/fake_driver.h"

namespace kbundle::testing {
namespace {

std::unique_ptr<fb::StepT> Memset(fb::Span bytes, uint8_t value) {
  auto step = std::make_unique<fb::StepT>();
  step->kind = static_cast<uint8_t>(StepKind::kMemset);
  step->target = std::make_unique<fb::ArgT>();
  step->target->kind = static_cast<uint8_t>(ArgKind::kResult);
  step->bytes = std::make_unique<fb::Span>(bytes);
  step->value = value;
  return step;
}

void AddAttributes(BundleMaker& maker, fb::OpT& op) {
  maker.AddEnum(op, "mode", {"plain", "wide"});
  fb::AttributeT& dtype = maker.AddAttribute(op, "dtype", AttributeType::kDType);
  dtype.has_default = true;
  dtype.integers = {static_cast<int64_t>(DType::kU8)};
  fb::AttributeT& sizes = maker.AddAttribute(op, "sizes", AttributeType::kIntArray);
  sizes.has_default = true;
  sizes.max_len = 4;
}

}  // namespace

BundleMaker PartMaker(const std::string& target, uint8_t value, const std::string& when,
                      int64_t scratch) {
  BundleMaker maker;
  maker.index.name = "library";
  fb::OpT& op = maker.AddOp("library.fill");
  maker.AddOperand(op, "x", "u8", "K");
  maker.AddResult(op, "y", "u8", "K");
  AddAttributes(maker, op);
  auto cut = std::make_unique<fb::CutT>();
  cut->symbols = {0};
  cut->batch = true;
  op.independent.push_back(std::move(cut));
  const bool host = Target::Parse(target)->kind == TargetKind::kHost;
  fb::TemplateT& row = maker.AddTemplate("fill", host ? "host" : "cuda");
  row.batch_invariant = maker.Rule(op, &row, "1", "true");
  if (!when.empty()) row.when.push_back(maker.Rule(op, &row, when, when));
  if (scratch > 0) {
    auto region = std::make_unique<fb::RegionT>();
    region->name = "scratch";
    region->type = std::make_unique<fb::TypeRef>(int8_t{-1}, static_cast<uint8_t>(DType::kU8));
    region->bytes = std::make_unique<fb::Span>(maker.Program(op, &row, std::to_string(scratch)));
    row.regions.push_back(std::move(region));
  }
  if (host) {
    row.steps.push_back(Memset(maker.Program(op, &row, "K"), value));
    maker.AddVariant(row, target, {}, {}, {kNoBlob}, {""});
    return maker;
  }
  fb::StepT& step = maker.AddKernelStep(row, "fill");
  for (const char* arg : {"y", "x"}) maker.AddArg(row, step, arg);
  const uint32_t blob = maker.AddBlob(FakeImage({{"fill", {8, 8}}}), fb::BlobFormat::Cubin);
  maker.AddVariant(row, target, {}, {}, {blob}, {"fill"});
  return maker;
}

}  // namespace kbundle::testing
