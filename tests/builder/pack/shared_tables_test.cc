// Promise: an index whose equal tables stand once says what the plain one says, and is smaller.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "builder/pack/index_bytes.h"

namespace kbundle::builder {
namespace {

std::unique_ptr<fb::ArgT> ArgNamed(const std::string& text, uint16_t index) {
  auto arg = std::make_unique<fb::ArgT>();
  arg->kind = 3;
  arg->index = index;
  arg->text = text;
  arg->program = std::make_unique<fb::Span>(index, 2);
  return arg;
}

// Steps of one kernel, whose structs differ in their last field alone.
fb::IndexT IndexOf(int templates) {
  fb::IndexT index;
  index.name = "shared";
  auto op = std::make_unique<fb::OpT>();
  op->name = "family.op";
  op->template_count = static_cast<uint32_t>(templates);
  for (int i = 0; i < 3; ++i) {
    auto problem = std::make_unique<fb::ProblemT>();
    problem->text = "problem " + std::to_string(i);
    problem->operands.push_back(std::make_unique<fb::ProblemTensorT>());
    problem->operands.back()->dims = {i % 2, 7};
    problem->attributes.push_back(std::make_unique<fb::AttributeValueT>());
    problem->attributes.back()->floats = {0.5};
    op->problems.push_back(std::move(problem));
  }
  index.ops.push_back(std::move(op));
  for (int t = 0; t < templates; ++t) {
    auto row = std::make_unique<fb::TemplateT>();
    row->name = "point";
    row->when.push_back(std::make_unique<fb::RuleT>());
    row->when.back()->text = "N >= 1";
    auto step = std::make_unique<fb::StepT>();
    step->grid = {fb::Span(1, 2), fb::Span(3, 4)};
    step->args.push_back(ArgNamed("x", 0));
    auto fields = std::make_unique<fb::StructT>();
    fields->bytes = {1, 2, 3, 4};
    for (uint16_t f = 0; f < 20; ++f) {
      fields->fields.push_back(std::make_unique<fb::StructFieldT>());
      fields->fields.back()->offset = f;
      fields->fields.back()->arg = ArgNamed(f == 19 ? "last " + std::to_string(t) : "same", f);
    }
    step->structs.push_back(std::move(fields));
    row->steps.push_back(std::move(step));
    index.templates.push_back(std::move(row));
  }
  index.code = {1, 2, 3};
  index.coordinates = {0.25};
  index.tuned_digest = std::make_unique<fb::Sha256>();
  index.providers = {"cuda", "host"};
  return index;
}

std::string Plain(const fb::IndexT& index) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::Index::Pack(builder, &index), "KBI1");
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

TEST(SharedTables, SayWhatThePlainIndexSays) {
  const fb::IndexT index = IndexOf(5);
  const std::string bytes = WriteIndexBytes(index).bytes;
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  ASSERT_TRUE(verifier.VerifyBuffer<fb::Index>("KBI1"));
  const std::unique_ptr<fb::IndexT> read(fb::GetIndex(bytes.data())->UnPack());
  EXPECT_EQ(read->op_names, std::vector<std::string>{"family.op"});
  read->op_names.clear();
  read->parts.clear();
  EXPECT_EQ(Plain(*read), Plain(index));
}

TEST(SharedTables, StandOnce) {
  const std::string five = WriteIndexBytes(IndexOf(5)).bytes;
  const std::string six = WriteIndexBytes(IndexOf(6)).bytes;
  const size_t plain = Plain(IndexOf(6)).size() - Plain(IndexOf(5)).size();
  EXPECT_LT(3 * (six.size() - five.size()), plain);
  const auto* templates = fb::GetIndex(five.data())->templates();
  const auto field = [&](uint32_t t, uint32_t f) {
    return templates->Get(t)->steps()->Get(0)->structs()->Get(0)->fields()->Get(f);
  };
  EXPECT_EQ(field(0, 3), field(4, 3));
  EXPECT_NE(field(0, 3), field(0, 4));
  EXPECT_NE(field(0, 19), field(4, 19));
}

// Readers allow so many tables for each byte, counted as often as they are referred to (FORMAT.md 3).
TEST(SharedTables, AreNoMoreThanReadersTake) {
  const fb::IndexT index = IndexOf(3000);
  const std::string bytes = WriteIndexBytes(index).bytes;
  flatbuffers::Verifier::Options options;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(bytes.size() / 8 + 16);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                                 options);
  EXPECT_TRUE(verifier.VerifyBuffer<fb::Index>("KBI1"));
}

TEST(SharedTables, AreTheSameBytesAgain) {
  EXPECT_EQ(WriteIndexBytes(IndexOf(4)).bytes, WriteIndexBytes(IndexOf(4)).bytes);
}

}  // namespace
}  // namespace kbundle::builder
