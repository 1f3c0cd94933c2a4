#include "perf/synthetic_bundle.h"

#include <zstd.h>

#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "builder/support/files.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/format.h"
#include "kbundle/key.h"
#include "kbundle/sha256.h"

namespace kbundle::builder {
namespace {

constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kE4M3};
constexpr const char* kTargets[] = {"sm_80", "sm_90a", "sm_100f", "sm_120f"};
constexpr uint8_t kMajor[] = {8, 9, 10, 12};
constexpr uint8_t kFeature[] = {0, 'a', 'f', 'f'};
constexpr int kTemplates = 5, kPoints = 5;
constexpr int kVariantsOfOp = 5 * 4 * kTemplates * kPoints;
constexpr size_t kObjectBytes = 256;

uint64_t AlignUp(uint64_t value) {
  return (value + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

// Collects the index and the payload of one bundle.
class Synthesis {
 public:
  explicit Synthesis(int ops) : ops_(ops) {}
  Status Write(const std::string& path);

 private:
  using Instructions = std::vector<std::pair<Opcode, uint32_t>>;

  fb::Span Program(const Instructions& instructions);
  std::unique_ptr<fb::RuleT> Rule(const char* text, const Instructions& instructions);
  uint32_t Constant(int64_t value);
  void AddTargets();
  void AddOp(int number);
  void AddTemplate(uint32_t op, int number);
  void AddVariants(uint32_t op);
  void AddObject();
  std::vector<uint8_t> Assemble();

  const int ops_;
  fb::IndexT index_;
  std::vector<std::vector<uint8_t>> frames_;
  uint64_t noise_ = 88172645463325252ull;
};

fb::Span Synthesis::Program(const Instructions& instructions) {
  const auto first = static_cast<uint32_t>(index_.code.size());
  for (const auto& [opcode, operand] : instructions) {
    index_.code.push_back(static_cast<uint32_t>(opcode) | operand << 8);
  }
  return fb::Span(first, static_cast<uint32_t>(instructions.size()));
}

std::unique_ptr<fb::RuleT> Synthesis::Rule(const char* text, const Instructions& instructions) {
  auto rule = std::make_unique<fb::RuleT>();
  rule->text = text;
  rule->program = std::make_unique<fb::Span>(Program(instructions));
  return rule;
}

uint32_t Synthesis::Constant(int64_t value) {
  index_.constants.push_back(value);
  return static_cast<uint32_t>(index_.constants.size() - 1);
}

void Synthesis::AddTargets() {
  for (size_t i = 0; i < std::size(kTargets); ++i) {
    auto target = std::make_unique<fb::TargetT>();
    target->name = kTargets[i];
    target->kind = static_cast<uint8_t>(TargetKind::kCuda);
    target->major = kMajor[i];
    target->feature = kFeature[i];
    index_.targets.push_back(std::move(target));
  }
}

std::unique_ptr<fb::TensorT> Tensor(const char* name, const fb::Dim& rows, const fb::Dim& last) {
  auto tensor = std::make_unique<fb::TensorT>();
  tensor->name = name;
  tensor->type = std::make_unique<fb::TypeRef>(static_cast<int8_t>(0), static_cast<uint8_t>(0));
  tensor->dims = {rows, last};
  tensor->text = "T[rows.., K]";
  return tensor;
}

void Synthesis::AddOp(int number) {
  char name[32];
  std::snprintf(name, sizeof name, "synthetic.op_%03d", number);
  auto op = std::make_unique<fb::OpT>();
  op->name = name;
  op->summary = "y = f(x, scale)";
  op->interface_hash = Xxh3(name, std::strlen(name));
  auto type = std::make_unique<fb::TypeParamT>();
  type->name = "T";
  for (DType dtype : kTypes) type->dtypes.push_back(static_cast<uint8_t>(dtype));
  op->types.push_back(std::move(type));
  op->symbols = {"rows", "K"};
  auto scale = std::make_unique<fb::AttributeT>();
  scale->name = "scale";
  scale->type = static_cast<uint8_t>(AttributeType::kFloat);
  scale->has_default = true;
  scale->floats = {1.0};
  op->attributes.push_back(std::move(scale));
  op->operands.push_back(
      Tensor("x", fb::Dim(0, 1, 1, fb::Span(0, 0)), fb::Dim(1, 0, 1, fb::Span(0, 0))));
  op->results.push_back(Tensor("y", fb::Dim(0, 1, 0, fb::Span(0, 0)),
                               fb::Dim(-1, 0, 0, Program({{Opcode::kDim, 1}}))));
  op->require.push_back(
      Rule("K >= 1", {{Opcode::kDim, 1}, {Opcode::kConst, Constant(1)}, {Opcode::kGe, 0}}));
  op->coordinates = {0, 1};
  op->first_template = static_cast<uint32_t>(index_.templates.size());
  op->template_count = kTemplates;
  index_.ops.push_back(std::move(op));
  for (int i = 0; i < kTemplates; ++i) AddTemplate(static_cast<uint32_t>(number), i);
  AddVariants(static_cast<uint32_t>(number));
}

std::unique_ptr<fb::ArgT> Arg(ArgKind kind, DType ctype, fb::Span program, const char* text) {
  auto arg = std::make_unique<fb::ArgT>();
  arg->kind = static_cast<uint8_t>(kind);
  arg->ctype = static_cast<uint8_t>(ctype);
  arg->program = std::make_unique<fb::Span>(program);
  arg->text = text;
  return arg;
}

void Synthesis::AddTemplate(uint32_t op, int number) {
  auto variant = std::make_unique<fb::TemplateT>();
  variant->op = op;
  variant->name = "template_" + std::to_string(number);
  variant->provider = 0;  // Index.providers
  variant->source = "synthetic.cu";
  variant->compiler = "nvrtc";
  variant->tunables = {"VEC", "THREADS"};
  const uint32_t zero = Constant(0), items = Constant(4 << (2 * number));
  variant->when.push_back(Rule("K % VEC == 0", {{Opcode::kDim, 1},
                                                {Opcode::kTunable, 0},
                                                {Opcode::kMod, 0},
                                                {Opcode::kConst, zero},
                                                {Opcode::kEq, 0}}));
  variant->when.push_back(Rule("align(x, y) % (VEC * sizeof(T)) == 0", {{Opcode::kAlign, 0},
                                                                        {Opcode::kAlign, 1},
                                                                        {Opcode::kMin, 0},
                                                                        {Opcode::kTunable, 0},
                                                                        {Opcode::kSizeOfType, 0},
                                                                        {Opcode::kMul, 0},
                                                                        {Opcode::kMod, 0},
                                                                        {Opcode::kConst, zero},
                                                                        {Opcode::kEq, 0}}));
  variant->when.push_back(Rule("K <= VEC * THREADS * ITEMS", {{Opcode::kDim, 1},
                                                              {Opcode::kTunable, 0},
                                                              {Opcode::kTunable, 1},
                                                              {Opcode::kMul, 0},
                                                              {Opcode::kConst, items},
                                                              {Opcode::kMul, 0},
                                                              {Opcode::kLe, 0}}));
  auto step = std::make_unique<fb::StepT>();
  step->kind = static_cast<uint8_t>(StepKind::kKernel);
  step->kernel = "synthetic<{T}, {VEC}, {THREADS}>";
  step->grid = {Program({{Opcode::kDim, 0}})};
  step->block = {Program({{Opcode::kTunable, 1}})};
  step->args.push_back(Arg(ArgKind::kResult, DType::kInvalid, fb::Span(0, 0), "y"));
  step->args.push_back(Arg(ArgKind::kOperand, DType::kInvalid, fb::Span(0, 0), "x"));
  step->args.push_back(Arg(ArgKind::kFloat, DType::kF32, fb::Span(0, 0), "f32(scale)"));
  step->args.push_back(
      Arg(ArgKind::kInteger, DType::kI64, Program({{Opcode::kDim, 0}}), "i64(rows)"));
  step->args.push_back(Arg(ArgKind::kInteger, DType::kI32, Program({{Opcode::kDim, 1}}), "i32(K)"));
  variant->steps.push_back(std::move(step));
  index_.templates.push_back(std::move(variant));
}

void Synthesis::AddVariants(uint32_t op) {
  const uint32_t first_template = index_.ops[op]->first_template;
  uint32_t tunables = 0;
  for (int point = 0; point < kPoints; ++point) {
    const uint32_t first = Constant(16 >> point);
    if (point == 0) tunables = first;
    Constant(128);
  }
  for (uint16_t target = 0; target < std::size(kTargets); ++target) {
    for (DType type : kTypes) {  // ascending, as the entries must be
      const uint64_t types = PackTypes({&type, 1});
      const auto first = static_cast<uint32_t>(index_.variants.size());
      for (uint32_t rank = 0; rank < kTemplates * kPoints; ++rank) {
        const auto kernel = static_cast<uint32_t>(index_.kernels.size());
        index_.kernels.emplace_back(kernel, kernel, 32u, 0u, 0u, 0u, 0u, 0u);
        index_.symbols.push_back("_Z9synthetic_" + std::to_string(kernel) +
                                 "IfLi8ELi128EEvPT_PKS0_flj");
        index_.variants.emplace_back(types, op, first_template + rank / kPoints, rank,
                                     tunables + rank % kPoints * 2, kernel, target,
                                     static_cast<uint16_t>(0));
        AddObject();
      }
      index_.entries.emplace_back(types, op, target, static_cast<uint16_t>(0), first,
                                  kTemplates * kPoints);
    }
  }
}

// One code object of noise, its own frame. The offset is set when all sizes are known.
void Synthesis::AddObject() {
  uint8_t bytes[kObjectBytes];
  for (uint8_t& byte : bytes) {  // xorshift; any noise will do
    noise_ ^= noise_ << 13;
    noise_ ^= noise_ >> 7;
    noise_ ^= noise_ << 17;
    byte = static_cast<uint8_t>(noise_ & 15);
  }
  std::vector<uint8_t> frame(ZSTD_compressBound(kObjectBytes));
  frame.resize(ZSTD_compress(frame.data(), frame.size(), bytes, kObjectBytes, 1));
  const Sha256Digest digest = Sha256Of(bytes, kObjectBytes);
  index_.blobs.emplace_back(0, static_cast<uint32_t>(frame.size()),
                            static_cast<uint32_t>(kObjectBytes), Xxh3(bytes, kObjectBytes),
                            fb::Sha256(digest), 0xffffffffu,
                            static_cast<uint32_t>(fb::BlobFormat::Cubin));
  frames_.push_back(std::move(frame));
}

// Blob offsets follow from the index's size, which does not depend on their values.
std::vector<uint8_t> Synthesis::Assemble() {
  const auto pack = [&](flatbuffers::FlatBufferBuilder& builder) {
    fb::FinishIndexBuffer(builder, fb::Index::Pack(builder, &index_));
  };
  flatbuffers::FlatBufferBuilder sizing, builder;
  pack(sizing);
  uint64_t end = sizeof(Header) + sizing.GetSize();
  for (fb::Blob& blob : index_.blobs) {
    const uint64_t offset = AlignUp(end);
    blob = fb::Blob(offset, blob.stored_size(), blob.size(), blob.xxh3(), blob.sha256(),
                    blob.base(), blob.format());
    end = offset + blob.stored_size();
  }
  pack(builder);

  std::vector<uint8_t> file(end, 0);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format_major = kFormatMajor;
  header.format_minor = kFormatMinor;
  header.header_size = sizeof(Header);
  header.file_size = end;
  header.index_offset = sizeof(Header);
  header.index_size = builder.GetSize();
  header.index_xxh3 = Xxh3(builder.GetBufferPointer(), builder.GetSize());
  const Sha256Digest digest = Sha256Of(builder.GetBufferPointer(), builder.GetSize());
  std::memcpy(header.index_sha256, digest.data(), digest.size());
  header.header_xxh3 = Xxh3(&header, sizeof header);
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + sizeof header, builder.GetBufferPointer(), builder.GetSize());
  for (size_t i = 0; i < frames_.size(); ++i) {
    std::memcpy(file.data() + index_.blobs[i].offset(), frames_[i].data(), frames_[i].size());
  }
  return file;
}

Status Synthesis::Write(const std::string& path) {
  index_.name = "synthetic";
  index_.providers = {"cuda"};
  AddTargets();
  for (int i = 0; i < ops_; ++i) AddOp(i);
  const std::vector<uint8_t> file = Assemble();
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  return PublishFile(path, bytes, Durability::kCrashOnly).Annotate("writing the synthetic bundle");
}

}  // namespace

Status WriteSyntheticBundle(const std::string& path, int variants) {
  return Synthesis((variants + kVariantsOfOp - 1) / kVariantsOfOp).Write(path);
}

}  // namespace kbundle::builder
