// A run of constants, kernels or code that is there already is used again, looked up by its
// content; places are given in the order in which things are first met, which is the order of
// sorted ops. Providers alone are kept sorted by name as they come, and the numbers behind a new
// one move up.
#include "builder/pack/index_writer.h"

#include <algorithm>

#include "builder/provider/provider.h"
#include "kbundle/status.h"

namespace kbundle::builder {
namespace {

constexpr uint32_t kMaxOperand = (1u << 24) - 1;

fb::TypeRef TypeOf(const TypeRef& type) {
  return fb::TypeRef(static_cast<int8_t>(type.param), static_cast<uint8_t>(type.dtype));
}

template <typename T>
uint8_t Number(T value) {
  return static_cast<uint8_t>(value);
}

// The attribute of which a score modifier is a choice (manifest/score.cc).
uint16_t ScoreAttribute(const Op& op) {
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    if (op.attributes[i].name == "score_mod") return static_cast<uint16_t>(i);
  }
  KB_CHECK(op.score_mods.empty());
  return 0;
}

}  // namespace

fb::Span IndexWriter::Intern(const Program& program) {
  std::vector<uint32_t> code;
  for (const Instruction& instruction : program.code) {
    uint32_t operand = static_cast<uint32_t>(instruction.operand);
    if (instruction.opcode == Opcode::kConst) {
      const auto next = static_cast<uint32_t>(index_.constants.size());
      const auto [found, fresh] = constants_.try_emplace(instruction.operand, next);
      if (fresh) index_.constants.push_back(instruction.operand);
      operand = found->second;
    }
    KB_CHECK(operand <= kMaxOperand);
    code.push_back(static_cast<uint32_t>(instruction.opcode) | operand << 8);
  }
  if (code.empty()) return fb::Span(0, 0);
  const fb::Span place(static_cast<uint32_t>(index_.code.size()),
                       static_cast<uint32_t>(code.size()));
  const auto [found, fresh] = programs_.try_emplace(code, place);
  if (fresh) index_.code.insert(index_.code.end(), code.begin(), code.end());
  return found->second;
}

uint32_t IndexWriter::InternConstants(const std::vector<int64_t>& values) {
  if (values.empty()) return 0;
  const auto place = static_cast<uint32_t>(index_.constants.size());
  const auto [found, fresh] = constant_runs_.try_emplace(values, place);
  if (fresh) index_.constants.insert(index_.constants.end(), values.begin(), values.end());
  return found->second;
}

uint32_t IndexWriter::InternSymbol(const std::string& symbol) {
  const auto place = static_cast<uint32_t>(index_.symbols.size());
  const auto [found, fresh] = symbols_.try_emplace(symbol, place);
  if (fresh) index_.symbols.push_back(symbol);
  return found->second;
}

uint32_t IndexWriter::InternKernels(const std::vector<fb::Kernel>& rows) {
  std::vector<uint32_t> key;
  for (const fb::Kernel& row : rows) {
    key.insert(key.end(),
               {row.blob(), row.symbol(), row.registers(), row.spill_bytes(), row.static_shared(),
                row.dynamic_shared(), row.threads(), row.workspace()});
  }
  const auto place = static_cast<uint32_t>(index_.kernels.size());
  const auto [found, fresh] = kernel_runs_.try_emplace(std::move(key), place);
  if (fresh) index_.kernels.insert(index_.kernels.end(), rows.begin(), rows.end());
  return found->second;
}

std::unique_ptr<fb::Span> IndexWriter::SpanOf(const Program& program) {
  return program.empty() ? nullptr : std::make_unique<fb::Span>(Intern(program));
}

std::vector<fb::Span> IndexWriter::SpansOf(const std::vector<Program>& programs) {
  std::vector<fb::Span> spans;
  for (const Program& program : programs) spans.push_back(Intern(program));
  return spans;
}

std::unique_ptr<fb::RuleT> IndexWriter::RuleOf(const Program& program) {
  auto rule = std::make_unique<fb::RuleT>();
  rule->program = SpanOf(program);
  rule->text = program.text;
  return rule;
}

std::unique_ptr<fb::TensorT> IndexWriter::TensorOf(const Tensor& tensor) {
  auto row = std::make_unique<fb::TensorT>();
  row->name = tensor.name;
  row->type = std::make_unique<fb::TypeRef>(TypeOf(tensor.type));
  for (const Dim& dim : tensor.dims) {
    row->dims.emplace_back(static_cast<int16_t>(dim.symbol), Number(dim.ellipsis), Number(dim.bind),
                           Intern(dim.program));
  }
  row->text = tensor.text;
  row->optional = tensor.optional;
  row->strided = tensor.strided;
  if (tensor.bound) row->bound = RuleOf(*tensor.bound);
  if (tensor.when) row->when = RuleOf(*tensor.when);
  row->alias = static_cast<int16_t>(tensor.alias);
  return row;
}

std::unique_ptr<fb::ArgT> IndexWriter::ArgOf(const Arg& arg) {
  auto row = std::make_unique<fb::ArgT>();
  row->kind = Number(arg.kind);
  row->index = static_cast<uint16_t>(arg.index);
  row->ctype = Number(arg.ctype);
  row->count = static_cast<uint16_t>(arg.count);
  row->program = SpanOf(arg.program);
  if (IsPointer(arg) && !arg.program.empty()) has_offsets_ = true;
  row->text = arg.text;
  return row;
}

std::unique_ptr<fb::TensorMapT> IndexWriter::TensorMapOf(const TensorMap& map) {
  auto row = std::make_unique<fb::TensorMapT>();
  row->tensor = static_cast<uint16_t>(map.tensor);
  row->type = std::make_unique<fb::TypeRef>(TypeOf(map.type));
  row->dims = SpansOf(map.dims);
  row->strides = SpansOf(map.strides);
  row->box = SpansOf(map.box);
  row->element_strides = SpansOf(map.element_strides);
  row->swizzle = Number(map.swizzle);
  row->interleave = Number(map.interleave);
  row->l2 = Number(map.l2);
  row->fill = Number(map.fill);
  return row;
}

std::unique_ptr<fb::StructT> IndexWriter::StructOf(const StructArg& arg) {
  has_structs_ = true;
  auto row = std::make_unique<fb::StructT>();
  row->bytes.assign(arg.bytes.begin(), arg.bytes.end());
  for (const StructArg::Field& field : arg.fields) {
    auto f = std::make_unique<fb::StructFieldT>();
    f->offset = static_cast<uint16_t>(field.offset);
    f->arg = ArgOf(field.arg);
    row->fields.push_back(std::move(f));
  }
  return row;
}

std::unique_ptr<fb::StepT> IndexWriter::StepOf(const Step& step, const Provider& provider) {
  auto row = std::make_unique<fb::StepT>();
  row->kind = Number(step.kind);
  row->kernel = step.kernel;
  if (step.when) row->when = RuleOf(*step.when);
  row->grid = SpansOf(step.grid);
  row->block = SpansOf(step.block);
  row->cluster = SpansOf(step.cluster);
  row->shared = SpanOf(step.shared);
  row->range = SpanOf(step.range);
  row->grain = SpanOf(step.grain);
  row->programmatic = step.programmatic;
  for (const Arg& arg : step.args) row->args.push_back(ArgOf(arg));
  for (const TensorMap& map : step.tensor_maps) row->tensor_maps.push_back(TensorMapOf(map));
  for (const StructArg& arg : step.structs) row->structs.push_back(StructOf(arg));
  provider.WriteStep(step, this, row.get());
  if (step.kind == StepKind::kMemset || step.kind == StepKind::kCopy) {
    row->target = ArgOf(step.target);
    if (step.kind == StepKind::kCopy) row->source = ArgOf(step.source);
    row->bytes = SpanOf(step.bytes);
    row->value = step.value;
  }
  return row;
}

// Names are sorted, so those behind a new one move.
uint8_t IndexWriter::ProviderNumber(const Provider& provider) {
  const std::string name(provider.bundle_name());
  const auto place = std::lower_bound(index_.providers.begin(), index_.providers.end(), name);
  const auto number = static_cast<uint8_t>(place - index_.providers.begin());
  if (place != index_.providers.end() && *place == name) return number;
  index_.providers.insert(place, name);
  for (const auto& row : index_.templates) row->provider += row->provider >= number ? 1 : 0;
  return number;
}

std::unique_ptr<fb::TemplateT> IndexWriter::TemplateOf(const Template& variant, uint32_t op) {
  auto row = std::make_unique<fb::TemplateT>();
  row->op = op;
  row->name = variant.name;
  row->provider = ProviderNumber(*variant.provider);
  row->source = variant.source;
  row->compiler = variant.compiler;
  row->tunables = variant.tunables;
  for (const NamedProgram& let : variant.lets) {
    row->lets.push_back(RuleOf(let.program));
    row->lets.back()->text = let.name;
  }
  for (const Program& rule : variant.when) row->when.push_back(RuleOf(rule));
  if (variant.deterministic) row->deterministic = RuleOf(*variant.deterministic);
  if (variant.batch_invariant) row->batch_invariant = RuleOf(*variant.batch_invariant);
  for (const Region& region : variant.regions) {
    auto r = std::make_unique<fb::RegionT>();
    r->name = region.name;
    r->type = std::make_unique<fb::TypeRef>(TypeOf(region.type));
    r->bytes = SpanOf(region.bytes);
    r->text = region.text;
    row->regions.push_back(std::move(r));
  }
  for (const Step& step : variant.steps) row->steps.push_back(StepOf(step, *variant.provider));
  return row;
}

void IndexWriter::AddInterface(const Op& op, fb::OpT* row) {
  for (const TypeParam& type : op.types) {
    auto t = std::make_unique<fb::TypeParamT>();
    t->name = type.name;
    for (DType dtype : type.dtypes) t->dtypes.push_back(Number(dtype));
    t->attribute = static_cast<int16_t>(type.attribute);
    row->types.push_back(std::move(t));
  }
  for (const Attribute& attribute : op.attributes) {
    auto a = std::make_unique<fb::AttributeT>();
    a->name = attribute.name;
    a->type = Number(attribute.type);
    a->has_default = attribute.has_default;
    a->integers = attribute.integers;
    a->floats = attribute.floats;
    a->choices = attribute.choices;
    a->max_len = attribute.max_len;
    row->attributes.push_back(std::move(a));
  }
  for (const Tensor& tensor : op.operands) row->operands.push_back(TensorOf(tensor));
  for (const Tensor& tensor : op.results) row->results.push_back(TensorOf(tensor));
  for (const Program& rule : op.require) row->require.push_back(RuleOf(rule));
  for (int symbol : op.coordinates) row->coordinates.push_back(static_cast<uint16_t>(symbol));
  for (const Cut& cut : op.independent) {
    auto c = std::make_unique<fb::CutT>();
    c->symbols.assign(cut.symbols.begin(), cut.symbols.end());
    if (cut.when) c->when = RuleOf(*cut.when);
    c->sums.assign(cut.sums.begin(), cut.sums.end());
    c->once.assign(cut.once.begin(), cut.once.end());
    c->batch = cut.batch;
    row->independent.push_back(std::move(c));
  }
  for (const Tolerance& tolerance : op.tolerances) {
    auto t = std::make_unique<fb::ToleranceT>();
    t->result = static_cast<uint16_t>(tolerance.result);
    t->dtype = Number(tolerance.dtype);
    t->ulps = tolerance.ulps;
    t->relative = tolerance.relative;
    row->tolerances.push_back(std::move(t));
  }
}

void IndexWriter::AddExpressions(const Op& op, fb::OpT* row) {
  for (const ScoreMod& mod : op.score_mods) {
    auto m = std::make_unique<fb::ExpressionT>();
    m->attribute = ScoreAttribute(op);
    m->name = mod.name;
    m->text = mod.expression.text;
    m->scalars = mod.expression.scalars;
    for (const ScoreTensor& tensor : mod.expression.tensors) {
      auto t = std::make_unique<fb::ExpressionTensorT>();
      t->name = tensor.name;
      t->dims = tensor.dims;
      m->tensors.push_back(std::move(t));
    }
    row->expressions.push_back(std::move(m));
  }
}

void IndexWriter::AddProblems(const Op& op, fb::OpT* row) {
  for (const OpProblem& problem : op.problems) {
    auto p = std::make_unique<fb::ProblemT>();
    p->text = problem.text;
    for (const ProblemTensor& tensor : problem.operands) {
      auto t = std::make_unique<fb::ProblemTensorT>();
      t->present = tensor.present;
      t->dtype = Number(tensor.dtype);
      t->dims = tensor.dims;
      p->operands.push_back(std::move(t));
    }
    for (const ProblemAttribute& attribute : problem.attributes) {
      auto a = std::make_unique<fb::AttributeValueT>();
      a->attribute = static_cast<uint16_t>(attribute.attribute);
      a->integers = attribute.integers;
      a->floats = attribute.floats;
      p->attributes.push_back(std::move(a));
    }
    row->problems.push_back(std::move(p));
  }
}

void IndexWriter::AddOp(const Op& op) {
  const auto number = static_cast<uint32_t>(index_.ops.size());
  auto row = std::make_unique<fb::OpT>();
  row->name = op.name;
  row->summary = op.summary;
  row->interface_hash = op.interface_hash;
  row->symbols = op.symbols;
  row->vmap = Number(op.vmap);
  AddInterface(op, row.get());
  AddExpressions(op, row.get());
  AddProblems(op, row.get());
  row->first_template = static_cast<uint32_t>(index_.templates.size());
  row->template_count = static_cast<uint32_t>(op.templates.size());
  for (const Template& variant : op.templates) {
    index_.templates.push_back(TemplateOf(variant, number));
  }
  index_.ops.push_back(std::move(row));
}

}  // namespace kbundle::builder
