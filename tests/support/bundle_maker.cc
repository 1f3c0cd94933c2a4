#include "support/bundle_maker.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include "kbundle/key.h"
#include "kbundle/target.h"

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
  static const std::map<std::string_view, Opcode> table = {{"+", Opcode::kAdd},
                                                           {"-", Opcode::kSub},
                                                           {"*", Opcode::kMul},
                                                           {"/", Opcode::kDiv},
                                                           {"%", Opcode::kMod},
                                                           {"min", Opcode::kMin},
                                                           {"max", Opcode::kMax},
                                                           {"ceil_div", Opcode::kCeilDiv},
                                                           {"==", Opcode::kEq},
                                                           {"!=", Opcode::kNe},
                                                           {"<", Opcode::kLt},
                                                           {"<=", Opcode::kLe},
                                                           {">", Opcode::kGt},
                                                           {">=", Opcode::kGe},
                                                           {"&&", Opcode::kAnd},
                                                           {"||", Opcode::kOr},
                                                           {"neg", Opcode::kNeg},
                                                           {"!", Opcode::kNot},
                                                           {"abs", Opcode::kAbs},
                                                           {"next_pow2", Opcode::kNextPow2},
                                                           {"ceil_log2", Opcode::kCeilLog2},
                                                           {"?:", Opcode::kSelect},
                                                           {"sm_count", Opcode::kSmCount}};
  return table;
}

}  // namespace

void RefuseToMake(const std::string& what) {
  std::fprintf(stderr, "BundleMaker: %s\n", what.c_str());
  std::abort();
}

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
  RefuseToMake("unknown word '" + std::string(token) + "'");
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
  if (!dtype && param < 0) RefuseToMake("unknown type " + type);
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

fb::AttributeT& BundleMaker::AddEnum(fb::OpT& op, const std::string& name,
                                     std::vector<std::string> choices) {
  fb::AttributeT& attribute = AddAttribute(op, name, AttributeType::kEnum);
  attribute.choices = std::move(choices);
  attribute.has_default = true;
  attribute.integers = {0};
  return attribute;
}

uint8_t BundleMaker::ProviderNumber(const std::string& name) {
  const auto place = std::lower_bound(index.providers.begin(), index.providers.end(), name);
  const auto number = static_cast<uint8_t>(place - index.providers.begin());
  if (place != index.providers.end() && *place == name) return number;
  index.providers.insert(place, name);  // sorted, so those behind it move
  for (const auto& row : index.templates) row->provider += row->provider >= number ? 1 : 0;
  return number;
}

fb::TemplateT& BundleMaker::AddTemplate(const std::string& name, const std::string& provider,
                                        std::vector<std::string> tunables) {
  auto row = std::make_unique<fb::TemplateT>();
  row->op = static_cast<uint32_t>(index.ops.size()) - 1;
  row->name = name;
  row->provider = ProviderNumber(provider);
  const bool cuda = provider == "cuda", host = provider == "host", triton = provider == "triton";
  row->source = cuda ? name + ".cu" : host ? name + "_host.cc" : triton ? name + ".py" : "";
  row->compiler = cuda ? "nvrtc" : host ? "c++" : triton ? "triton" : "";
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
  const std::string& provider = index.providers[row.provider];
  if (provider == "host") {
    step->range = std::make_unique<fb::Span>(Program(op, &row, "1"));
  } else {
    step->grid.push_back(Program(op, &row, "1"));
    if (provider != "triton") step->block.push_back(Program(op, &row, "128"));
  }
  row.steps.push_back(std::move(step));
  return *row.steps.back();
}

fb::StepT& BundleMaker::AddOwnStep(fb::TemplateT& row) {
  row.steps.push_back(std::make_unique<fb::StepT>());
  row.steps.back()->kind = static_cast<uint8_t>(StepKind::kOwn);
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
    if (operand < 0 && result < 0 && region < 0) RefuseToMake("unknown argument " + text);
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

void BundleMaker::AddStruct(fb::TemplateT& row, fb::StepT& step, size_t bytes,
                            const std::vector<std::pair<uint16_t, std::string>>& fields) {
  has_structs_ = true;
  auto made = std::make_unique<fb::StructT>();
  made->bytes.assign(bytes, 0xab);
  fb::StepT scratch;
  for (const auto& [offset, text] : fields) {
    AddArg(row, scratch, text);
    made->fields.push_back(std::make_unique<fb::StructFieldT>());
    made->fields.back()->offset = offset;
    made->fields.back()->arg = std::move(scratch.args.back());
  }
  auto arg = std::make_unique<fb::ArgT>();
  arg->kind = static_cast<uint8_t>(ArgKind::kStruct);
  arg->index = static_cast<uint16_t>(step.structs.size());
  arg->text = "Params";
  step.structs.push_back(std::move(made));
  step.args.push_back(std::move(arg));
}

uint16_t BundleMaker::AddTarget(const std::string& name) {
  if (const int i = NumberOf(index.targets, name); i >= 0) return static_cast<uint16_t>(i);
  const Result<Target> parsed = Target::Parse(name);
  if (!parsed.ok()) RefuseToMake(parsed.status().ToString());
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
  const std::string& provider = index.providers[row.provider];
  for (size_t i = 0; i < blobs.size(); ++i) {
    const bool code = blobs[i] != kNoBlob;
    const bool decided = code && provider == "triton";
    const bool own = row.steps[i]->kind == static_cast<uint8_t>(StepKind::kOwn);
    asking_ |= own && !code;
    index.kernels.emplace_back(blobs[i], code || own ? Symbol(symbols[i]) : 0, code ? 32 : 0, 0, 0,
                               decided ? kTritonShared : 0, decided ? kTritonThreads : 0,
                               own && provider == "cudnn" ? kPlanWorkspace : 0);
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

}  // namespace kbundle::testing
