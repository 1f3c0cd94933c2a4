#include "support/bundle_maker.h"

#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>

#include "kbundle/key.h"
#include "kbundle/sha256.h"
#include "kbundle/target.h"
#include "support/files.h"

namespace kbundle::testing {
namespace {

uint32_t Encode(Opcode opcode, uint32_t operand = 0) {
  return static_cast<uint32_t>(opcode) | operand << 8;
}

std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    int depth = 0;
    for (; end < text.size() && (text[end] != ' ' || depth > 0); ++end) {
      depth += (text[end] == '(') - (text[end] == ')');
    }
    if (end > i) words.emplace_back(text.substr(i, end - i));
    i = end + 1;
  }
  return words;
}

template <typename List>
int NumberOf(const List& list, std::string_view name) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i]->name == name) return static_cast<int>(i);
  }
  return -1;
}

int PlaceOf(const std::vector<std::string>& list, std::string_view name) {
  const auto found = std::find(list.begin(), list.end(), name);
  return found == list.end() ? -1 : static_cast<int>(found - list.begin());
}

const std::map<std::string_view, Opcode>& Operators() {
  static const std::map<std::string_view, Opcode> table = {
      {"+", Opcode::kAdd},     {"-", Opcode::kSub},
      {"*", Opcode::kMul},     {"/", Opcode::kDiv},
      {"%", Opcode::kMod},     {"min", Opcode::kMin},
      {"max", Opcode::kMax},   {"ceil_div", Opcode::kCeilDiv},
      {"==", Opcode::kEq},     {"!=", Opcode::kNe},
      {"<", Opcode::kLt},      {"<=", Opcode::kLe},
      {">", Opcode::kGt},      {">=", Opcode::kGe},
      {"&&", Opcode::kAnd},    {"||", Opcode::kOr},
      {"neg", Opcode::kNeg},   {"!", Opcode::kNot},
      {"abs", Opcode::kAbs},   {"next_pow2", Opcode::kNextPow2},
      {"?:", Opcode::kSelect}, {"sm_count", Opcode::kSmCount}};
  return table;
}

[[noreturn]] void Refuse(const std::string& what) {
  std::fprintf(stderr, "BundleMaker: %s\n", what.c_str());
  std::abort();
}

std::string Compress(const std::vector<uint8_t>& bytes, const std::vector<uint8_t>& base) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 12);
  if (!base.empty()) ZSTD_CCtx_refPrefix(context, base.data(), base.size());
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size());
  ZSTD_freeCCtx(context);
  if (ZSTD_isError(size)) Refuse(ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

}  // namespace

BundleMaker::BundleMaker() { index.name = "test"; }

uint32_t BundleMaker::Constant(int64_t value) {
  const auto found = std::find(index.constants.begin(), index.constants.end(), value);
  if (found == index.constants.end()) index.constants.push_back(value);
  return static_cast<uint32_t>(std::find(index.constants.begin(), index.constants.end(), value) -
                               index.constants.begin());
}

uint32_t BundleMaker::Symbol(const std::string& name) {
  int place = PlaceOf(index.symbols, name);
  if (place < 0) {
    place = static_cast<int>(index.symbols.size());
    index.symbols.push_back(name);
  }
  return static_cast<uint32_t>(place);
}

uint32_t BundleMaker::Word(const fb::OpT& op, const fb::TemplateT* row, std::string_view token) {
  if (const auto found = Operators().find(token); found != Operators().end()) {
    return Encode(found->second);
  }
  int64_t number;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number);
  if (error == std::errc() && end == token.data() + token.size()) {
    return Encode(Opcode::kConst, Constant(number));
  }
  if (const auto dtype = ParseDType(token)) {
    return Encode(Opcode::kConst, Constant(static_cast<int64_t>(*dtype)));
  }
  const size_t dot = token.find('.');
  const std::string_view name = token.substr(0, dot);
  const std::string_view what = dot == std::string_view::npos ? "" : token.substr(dot + 1);
  const auto place = [](int found) { return static_cast<uint32_t>(found); };
  if (const int i = NumberOf(op.types, name); i >= 0) {
    return Encode(what == "size" ? Opcode::kSizeOfType : Opcode::kType, place(i));
  }
  if (const int i = NumberOf(op.attributes, name); i >= 0) {
    if (what == "len") return Encode(Opcode::kLength, place(i));
    if (what.empty()) return Encode(Opcode::kAttribute, place(i));
    return Encode(Opcode::kElement, place(i) | static_cast<uint32_t>(what[0] - '0') << 8);
  }
  int tensor = NumberOf(op.operands, name);
  if (tensor < 0 && NumberOf(op.results, name) >= 0) {
    tensor = static_cast<int>(op.operands.size()) + NumberOf(op.results, name);
  }
  if (tensor >= 0 && !what.empty()) {
    if (what == "present") return Encode(Opcode::kPresent, place(tensor));
    if (what == "align") return Encode(Opcode::kAlign, place(tensor));
    if (what == "rank") return Encode(Opcode::kRank, place(tensor));
    const auto axis = static_cast<uint32_t>(what.back() - '0');
    return Encode(what.starts_with("dim") ? Opcode::kTensorDim : Opcode::kStride,
                  place(tensor) | axis << 8);
  }
  if (const int i = PlaceOf(op.symbols, name); i >= 0) return Encode(Opcode::kDim, place(i));
  if (row != nullptr) {
    if (const int i = PlaceOf(row->tunables, name); i >= 0)
      return Encode(Opcode::kTunable, place(i));
    for (size_t i = 0; i < row->lets.size(); ++i) {
      if ("let:" + row->lets[i]->text == name)
        return Encode(Opcode::kLet, static_cast<uint32_t>(i));
    }
  }
  Refuse("unknown word '" + std::string(token) + "'");
}

fb::Span BundleMaker::Program(const fb::OpT& op, const fb::TemplateT* row,
                              std::string_view postfix) {
  const auto first = static_cast<uint32_t>(index.code.size());
  for (const std::string& token : Split(postfix)) index.code.push_back(Word(op, row, token));
  return fb::Span(first, static_cast<uint32_t>(index.code.size()) - first);
}

std::unique_ptr<fb::RuleT> BundleMaker::Rule(const fb::OpT& op, const fb::TemplateT* row,
                                             std::string_view postfix, std::string_view text) {
  auto rule = std::make_unique<fb::RuleT>();
  rule->program = std::make_unique<fb::Span>(Program(op, row, postfix));
  rule->text = text.empty() ? postfix : text;
  return rule;
}

fb::OpT& BundleMaker::AddOp(const std::string& name) {
  auto op = std::make_unique<fb::OpT>();
  op->name = name;
  op->first_template = static_cast<uint32_t>(index.templates.size());
  op->interface_hash = Xxh3(name.data(), name.size());
  index.ops.push_back(std::move(op));
  return *index.ops.back();
}

void BundleMaker::AddType(fb::OpT& op, const std::string& name, std::vector<DType> dtypes,
                          int attribute) {
  auto type = std::make_unique<fb::TypeParamT>();
  type->name = name;
  for (DType dtype : dtypes) type->dtypes.push_back(static_cast<uint8_t>(dtype));
  type->attribute = static_cast<int16_t>(attribute);
  op.types.push_back(std::move(type));
}

fb::TensorT& BundleMaker::AddTensor(fb::OpT& op, bool operand, const std::string& name,
                                    const std::string& type, const std::string& shape) {
  auto tensor = std::make_unique<fb::TensorT>();
  tensor->name = name;
  tensor->text = type + "[" + shape + "]";
  const auto dtype = ParseDType(type);
  const int param = NumberOf(op.types, type);
  if (!dtype && param < 0) Refuse("unknown type " + type);
  tensor->type =
      std::make_unique<fb::TypeRef>(static_cast<int8_t>(dtype ? -1 : param),
                                    static_cast<uint8_t>(dtype.value_or(DType::kInvalid)));
  for (std::string word : Split(shape)) {
    if (word.front() == '(') {
      const fb::Span program = Program(op, nullptr, word.substr(1, word.size() - 2));
      tensor->dims.emplace_back(-1, 0, 0, program);
      continue;
    }
    const bool ellipsis = word.ends_with("..");
    if (ellipsis) word.resize(word.size() - 2);
    if (PlaceOf(op.symbols, word) < 0) op.symbols.push_back(word);
    tensor->dims.emplace_back(static_cast<int16_t>(PlaceOf(op.symbols, word)), ellipsis, operand,
                              fb::Span(0, 0));
  }
  auto& list = operand ? op.operands : op.results;
  list.push_back(std::move(tensor));
  return *list.back();
}

fb::TensorT& BundleMaker::AddOperand(fb::OpT& op, const std::string& name, const std::string& type,
                                     const std::string& shape) {
  return AddTensor(op, true, name, type, shape);
}

fb::TensorT& BundleMaker::AddResult(fb::OpT& op, const std::string& name, const std::string& type,
                                    const std::string& shape) {
  return AddTensor(op, false, name, type, shape);
}

fb::AttributeT& BundleMaker::AddAttribute(fb::OpT& op, const std::string& name,
                                          AttributeType type) {
  auto attribute = std::make_unique<fb::AttributeT>();
  attribute->name = name;
  attribute->type = static_cast<uint8_t>(type);
  op.attributes.push_back(std::move(attribute));
  return *op.attributes.back();
}

fb::TemplateT& BundleMaker::AddTemplate(const std::string& name, Provider provider,
                                        std::vector<std::string> tunables) {
  auto row = std::make_unique<fb::TemplateT>();
  row->op = static_cast<uint32_t>(index.ops.size()) - 1;
  row->name = name;
  row->provider = static_cast<uint8_t>(provider);
  const bool cuda = provider == Provider::kCuda, host = provider == Provider::kHost;
  const bool cudnn = provider == Provider::kCudnn, cublaslt = provider == Provider::kCublasLt;
  row->source = cudnn || cublaslt ? "" : name + (cuda ? ".cu" : host ? "_host.cc" : ".py");
  row->compiler = cuda ? "nvrtc" : host ? "c++" : cudnn ? "cudnn" : cublaslt ? "" : "triton";
  row->tunables = std::move(tunables);
  index.templates.push_back(std::move(row));
  ++index.ops.back()->template_count;
  return *index.templates.back();
}

fb::StepT& BundleMaker::AddKernelStep(fb::TemplateT& row, const std::string& kernel) {
  auto step = std::make_unique<fb::StepT>();
  step->kind = static_cast<uint8_t>(StepKind::kKernel);
  step->kernel = kernel;
  const fb::OpT& op = *index.ops[row.op];
  if (row.provider == static_cast<uint8_t>(Provider::kCuda) ||
      row.provider == static_cast<uint8_t>(Provider::kCublasLt)) {
    step->grid.push_back(Program(op, &row, "1"));
    step->block.push_back(Program(op, &row, "128"));
  } else if (row.provider == static_cast<uint8_t>(Provider::kTriton)) {
    step->grid.push_back(Program(op, &row, "1"));
  } else if (row.provider == static_cast<uint8_t>(Provider::kCudnn)) {
    step->kind = static_cast<uint8_t>(StepKind::kExecutionPlan);
  } else {
    step->range = std::make_unique<fb::Span>(Program(op, &row, "1"));
  }
  row.steps.push_back(std::move(step));
  return *row.steps.back();
}

void BundleMaker::AddArg(fb::TemplateT& row, fb::StepT& step, const std::string& text) {
  const fb::OpT& op = *index.ops[row.op];
  if (const size_t at = text.find(" at "); at != std::string::npos) {
    AddArg(row, step, text.substr(0, at));
    step.args.back()->text = text;
    step.args.back()->program = std::make_unique<fb::Span>(Program(op, &row, text.substr(at + 4)));
    has_offsets_ = true;
    return;
  }
  auto arg = std::make_unique<fb::ArgT>();
  arg->text = text;
  const size_t open = text.find('(');
  const std::string inner =
      open == std::string::npos ? text : text.substr(open + 1, text.size() - open - 2);
  const int attribute = NumberOf(op.attributes, inner);
  if (open == std::string::npos) {
    const int operand = NumberOf(op.operands, text), result = NumberOf(op.results, text);
    const int region = text.starts_with("ws:") ? NumberOf(row.regions, text.substr(3)) : -1;
    const auto kind = operand >= 0  ? ArgKind::kOperand
                      : result >= 0 ? ArgKind::kResult
                                    : ArgKind::kRegion;
    arg->kind = static_cast<uint8_t>(kind);
    arg->index = static_cast<uint16_t>(std::max({operand, result, region}));
    if (operand < 0 && result < 0 && region < 0) Refuse("unknown argument " + text);
  } else {
    std::string ctype = text.substr(0, open);
    if (const size_t bracket = ctype.find('['); bracket != std::string::npos) {
      arg->count = static_cast<uint16_t>(std::stoi(ctype.substr(bracket + 1)));
      ctype.resize(bracket);
    }
    arg->ctype = static_cast<uint8_t>(*ParseDType(ctype));
    const bool is_float = attribute >= 0 && op.attributes[attribute]->type ==
                                                static_cast<uint8_t>(AttributeType::kFloat);
    const auto kind = arg->count != 0 ? ArgKind::kArray
                      : is_float      ? ArgKind::kFloat
                                      : ArgKind::kInteger;
    arg->kind = static_cast<uint8_t>(kind);
    if (kind == ArgKind::kInteger)
      arg->program = std::make_unique<fb::Span>(Program(op, &row, inner));
    else
      arg->index = static_cast<uint16_t>(attribute);
  }
  step.args.push_back(std::move(arg));
}

uint16_t BundleMaker::AddTarget(const std::string& name) {
  if (const int i = NumberOf(index.targets, name); i >= 0) return static_cast<uint16_t>(i);
  const Result<Target> parsed = Target::Parse(name);
  if (!parsed.ok()) Refuse(parsed.status().ToString());
  auto target = std::make_unique<fb::TargetT>();
  target->name = name;
  target->kind = static_cast<uint8_t>(parsed->kind);
  target->major = parsed->major;
  target->minor = parsed->minor;
  target->feature = static_cast<uint8_t>(parsed->feature);
  index.targets.push_back(std::move(target));
  return static_cast<uint16_t>(index.targets.size() - 1);
}

uint32_t BundleMaker::AddBlob(std::vector<uint8_t> bytes, fb::BlobFormat format, uint32_t base) {
  blobs_.push_back({std::move(bytes), format, base});
  return static_cast<uint32_t>(blobs_.size()) - 1;
}

void BundleMaker::AddVariant(const fb::TemplateT& row, const std::string& target,
                             std::vector<DType> types, std::vector<int64_t> tunables,
                             std::vector<uint32_t> blobs, std::vector<std::string> symbols) {
  uint32_t number = 0;
  while (index.templates[number].get() != &row) ++number;
  const auto values = static_cast<uint32_t>(index.constants.size());
  index.constants.insert(index.constants.end(), tunables.begin(), tunables.end());
  const auto kernels = static_cast<uint32_t>(index.kernels.size());
  const bool triton = row.provider == static_cast<uint8_t>(Provider::kTriton);
  const bool planned = row.provider == static_cast<uint8_t>(Provider::kCudnn);
  for (size_t i = 0; i < blobs.size(); ++i) {
    const bool code = blobs[i] != kNoBlob;
    const bool decided = code && triton;
    index.kernels.emplace_back(blobs[i], code ? Symbol(symbols[i]) : 0, code ? 32 : 0, 0, 0,
                               decided ? kTritonShared : 0, decided ? kTritonThreads : 0,
                               planned ? kPlanWorkspace : 0);
  }
  const auto rank = static_cast<uint32_t>(index.variants.size());  // order of adding
  index.variants.emplace_back(PackTypes(types), row.op, number, rank, values, kernels,
                              AddTarget(target), uint16_t{0});
}

void BundleMaker::AddRanOn(uint32_t blob, const std::string& device) {
  int place = PlaceOf(index.devices, device);
  if (place < 0) {
    place = static_cast<int>(index.devices.size());
    index.devices.push_back(device);
  }
  index.ran_on.emplace_back(blob, static_cast<uint32_t>(place));
}

void BundleMaker::SortRows(fb::IndexT& out) const {
  const auto key = [](const fb::Variant& v) { return EntryKey{v.op(), v.target(), v.types()}; };
  std::sort(out.variants.begin(), out.variants.end(), [&](const auto& a, const auto& b) {
    return std::pair(key(a), a.rank()) < std::pair(key(b), b.rank());
  });
  std::sort(out.ran_on.begin(), out.ran_on.end(), [](const auto& a, const auto& b) {
    return std::pair(a.blob(), a.device()) < std::pair(b.blob(), b.device());
  });
  out.entries.clear();
  for (uint32_t i = 0; i < out.variants.size();) {
    uint32_t end = i + 1;
    while (end < out.variants.size() && key(out.variants[end]) == key(out.variants[i])) ++end;
    const fb::Variant& v = out.variants[i];
    out.entries.emplace_back(v.types(), v.op(), v.target(), uint16_t{0}, i, end - i);
    i = end;
  }
}

namespace {

std::string PackIndex(const fb::IndexT& index) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::Index::Pack(builder, &index), kIndexIdentifier);
  return std::string(reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize());
}

uint64_t AlignUp(uint64_t value) {
  return (value + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

// Offsets of stored frames behind an index of that size.
void PlaceBlobs(uint64_t index_size, const std::vector<std::string>& frames, fb::IndexT* index) {
  uint64_t end = sizeof(Header) + index_size;
  for (size_t i = 0; i < std::min(frames.size(), index->blobs.size()); ++i) {
    fb::Blob& row = index->blobs[i];
    row = fb::Blob(AlignUp(end), static_cast<uint32_t>(frames[i].size()), row.size(), row.xxh3(),
                   row.sha256(), row.base(), row.format());
    end = row.offset() + frames[i].size();
  }
}

}  // namespace

std::string BundleMaker::Bytes() {
  std::vector<std::string> frames;
  index.blobs.clear();
  bool deltas = false;
  for (uint32_t i = 0; i < blobs_.size(); ++i) {
    const MadeBlob& blob = blobs_[i];
    const bool delta = blob.base != kNoBlob;
    frames.push_back(
        Compress(blob.bytes, delta ? blobs_[blob.base].bytes : std::vector<uint8_t>()));
    if (change_frame) change_frame(frames.back(), i);
    const Sha256Digest digest = Sha256Of(blob.bytes.data(), blob.bytes.size());
    index.blobs.emplace_back(0, 0, static_cast<uint32_t>(blob.bytes.size()),
                             Xxh3(blob.bytes.data(), blob.bytes.size()),
                             fb::Sha256(flatbuffers::span<const uint8_t, 32>(digest)), blob.base,
                             static_cast<uint32_t>(blob.format));
    deltas |= delta;
  }
  // Work on a copy: sorting and lies are for the file only.
  flatbuffers::FlatBufferBuilder copier;
  copier.Finish(fb::Index::Pack(copier, &index));
  fb::IndexT out;
  fb::GetIndex(copier.GetBufferPointer())->UnPackTo(&out);
  SortRows(out);
  PlaceBlobs(PackIndex(out).size(), frames, &out);  // struct vectors: the size does not change
  const size_t sound_size = PackIndex(out).size();
  if (change_index) change_index(out);
  std::string packed = PackIndex(out);
  if (packed.size() != sound_size) {
    PlaceBlobs(packed.size(), frames, &out);  // the lie is not about where blobs are
    packed = PackIndex(out);
  }
  if (change_index_bytes) change_index_bytes(packed);

  std::string bytes(sizeof(Header), '\0');
  bytes += packed;
  for (const std::string& frame : frames) {
    bytes.resize(AlignUp(bytes.size()));
    bytes += frame;
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format_major = kFormatMajor;
  header.format_minor = kFormatMinor;
  header.header_size = sizeof(Header);
  header.required_features = deltas ? kFeatureDeltaFrames : 0;
  if (has_offsets_) header.required_features |= kFeatureOffsets;
  header.file_size = bytes.size();
  header.index_offset = sizeof(Header);
  header.index_size = packed.size();
  if (change_header) change_header(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  Rehash(&bytes);
  return bytes;
}

std::shared_ptr<const Bundle> BundleMaker::Open(const std::string& path) {
  WriteFile(path, Bytes());
  auto bundle = Bundle::Open(path);
  if (!bundle.ok()) Refuse(bundle.status().ToString());
  return *bundle;
}

void Rehash(std::string* bytes) {
  Header header;
  std::memcpy(&header, bytes->data(), sizeof(header));
  if (header.index_offset <= bytes->size() &&
      header.index_size <= bytes->size() - header.index_offset) {
    const char* index = bytes->data() + header.index_offset;
    header.index_xxh3 = Xxh3(index, header.index_size);
    const Sha256Digest digest = Sha256Of(index, header.index_size);
    std::memcpy(header.index_sha256, digest.data(), digest.size());
  }
  header.header_xxh3 = 0;
  header.header_xxh3 = Xxh3(&header, sizeof(header));
  std::memcpy(bytes->data(), &header, sizeof(header));
}

}  // namespace kbundle::testing
