// A kernel of CuTe DSL is passed a hundred fields, and each point of its grid has steps of its own,
// whose fields are mostly its neighbour's. FlatBuffers refer to a table by where it is, so one
// serves all of an op who say the same: of the index of kernels/ that is nearly half.
//
// Generated code writes a table for each that it is given. So what is many is written here, from
// the leaves up: what a table holds, with the places of its children, is its key.
#include "builder/pack/shared_tables.h"

#include <unordered_map>
#include <vector>

#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

using flatbuffers::Offset;
using flatbuffers::String;
using flatbuffers::Vector;

}  // namespace

class SharedTables::Writer {
 public:
  explicit Writer(bool share) : share_(share) {}

  Offset<fb::Template> Of(const fb::TemplateT& row) {
    const auto name = builder_.CreateSharedString(row.name);
    const auto source = Text(row.source), compiler = Text(row.compiler);
    const auto tunables = All(row.tunables);
    const auto lets = All(row.lets), when = All(row.when);
    const auto regions = All(row.regions);
    const auto steps = All(row.steps);
    const auto deterministic = row.deterministic ? Of(*row.deterministic) : 0;
    const auto batch_invariant = row.batch_invariant ? Of(*row.batch_invariant) : 0;
    return fb::CreateTemplate(builder_, row.op, name, row.provider, source, compiler, tunables,
                              lets, when, regions, steps, deterministic, batch_invariant);
  }
  Offset<fb::Op> Of(const fb::OpT& op) {
    const auto name = builder_.CreateString(op.name);
    const auto summary = Text(op.summary);
    const auto types = All(op.types);
    const auto symbols = All(op.symbols);
    const auto attributes = All(op.attributes);
    const auto operands = All(op.operands), results = All(op.results);
    const auto require = All(op.require);
    const auto coordinates = Numbers(op.coordinates);
    const auto tolerances = All(op.tolerances);
    const auto problems = All(op.problems);
    const auto expressions = All(op.expressions);
    return fb::CreateOp(builder_, name, summary, op.interface_hash, types, symbols, attributes,
                        operands, results, require, coordinates, op.vmap, tolerances, problems,
                        op.first_template, op.template_count, expressions, All(op.independent));
  }
  // What is few, or seldom equal.
  template <typename Row>
  Offset<typename Row::TableType> Of(const Row& row) {
    return Row::TableType::Pack(builder_, &row);
  }

  std::string_view Bytes() {
    builder_.Align(8);
    return {reinterpret_cast<const char*>(builder_.GetCurrentBufferPointer()), builder_.GetSize()};
  }

 private:
  Offset<String> Text(const std::string& text) {
    return text.empty() ? 0 : builder_.CreateSharedString(text);
  }
  // What make() writes, once for each key.
  template <typename T, typename Make>
  Offset<T> Once(const KeyWriter& key, const Make& make) {
    if (!share_) return make();
    const auto [found, fresh] = known_.try_emplace(key.bytes(), 0);
    if (fresh) found->second = make().o;
    return Offset<T>(found->second);
  }

  static void Add(const fb::Span* span, KeyWriter* key) {
    key->U8(span != nullptr).U32(span ? span->first() : 0).U32(span ? span->count() : 0);
  }

  Offset<fb::Rule> Of(const fb::RuleT& rule) {
    KeyWriter key;
    Add(rule.program.get(), &key.Text("rule").Text(rule.text));
    return Once<fb::Rule>(key, [&] { return fb::CreateRule(builder_, &rule); });
  }
  Offset<fb::Arg> Of(const fb::ArgT& arg) {
    KeyWriter key;
    Add(arg.program.get(), &key.Text("arg").Text(arg.text));
    key.U8(arg.kind).U8(arg.ctype).U32(arg.index).U32(arg.count);
    return Once<fb::Arg>(key, [&] { return fb::CreateArg(builder_, &arg); });
  }
  Offset<fb::StructField> Of(const fb::StructFieldT& field) {
    const Offset<fb::Arg> arg = Of(*field.arg);
    return Once<fb::StructField>(KeyWriter().Text("field").U32(field.offset).U32(arg.o), [&] {
      return fb::CreateStructField(builder_, field.offset, arg);
    });
  }
  Offset<fb::Struct> Of(const fb::StructT& value) {
    const auto fields = All(value.fields);
    KeyWriter key;
    key.Text("struct").U32(fields.o);
    key.Text({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
    return Once<fb::Struct>(key, [&] {
      return fb::CreateStruct(builder_, builder_.CreateVector(value.bytes), fields);
    });
  }
  Offset<fb::ProblemTensor> Of(const fb::ProblemTensorT& tensor) {
    KeyWriter key;
    key.Text("tensor").U8(tensor.present).U8(tensor.dtype);
    for (const int64_t dim : tensor.dims) key.I64(dim);
    return Once<fb::ProblemTensor>(key, [&] { return fb::CreateProblemTensor(builder_, &tensor); });
  }
  Offset<fb::AttributeValue> Of(const fb::AttributeValueT& value) {
    KeyWriter key;
    key.Text("value").U32(value.attribute).U64(value.integers.size());
    for (const int64_t number : value.integers) key.I64(number);
    for (const double number : value.floats) key.F64(number);
    return Once<fb::AttributeValue>(key,
                                    [&] { return fb::CreateAttributeValue(builder_, &value); });
  }
  Offset<fb::Problem> Of(const fb::ProblemT& problem) {
    const auto text = Text(problem.text);
    const auto operands = All(problem.operands);
    return fb::CreateProblem(builder_, text, operands, All(problem.attributes));
  }

  // Vectors: nothing where there is none, as generated code does.
  template <typename Row>
  Offset<Vector<Offset<typename Row::TableType>>> All(
      const std::vector<std::unique_ptr<Row>>& rows) {
    using Tables = Vector<Offset<typename Row::TableType>>;
    if (rows.empty()) return 0;
    std::vector<Offset<typename Row::TableType>> tables;
    KeyWriter key;
    key.Text("tables");
    for (const auto& row : rows) {
      tables.push_back(Of(*row));
      key.U32(tables.back().o);
    }
    return Once<Tables>(key, [&] { return builder_.CreateVector(tables); });
  }
  Offset<Vector<const fb::Span*>> All(const std::vector<fb::Span>& spans) {
    if (spans.empty()) return 0;
    KeyWriter key;
    key.Text("spans");
    for (const fb::Span& span : spans) key.U32(span.first()).U32(span.count());
    return Once<Vector<const fb::Span*>>(key,
                                         [&] { return builder_.CreateVectorOfStructs(spans); });
  }
  Offset<Vector<Offset<String>>> All(const std::vector<std::string>& texts) {
    return texts.empty() ? 0 : builder_.CreateVectorOfStrings(texts);
  }
  template <typename T>
  Offset<Vector<T>> Numbers(const std::vector<T>& numbers) {
    return numbers.empty() ? 0 : builder_.CreateVector(numbers);
  }

  Offset<fb::Step> Of(const fb::StepT& step) {
    const auto kernel = Text(step.kernel);
    const auto when = step.when ? Of(*step.when) : 0;
    const auto grid = All(step.grid), block = All(step.block), cluster = All(step.cluster);
    const auto args = All(step.args);
    const auto maps = All(step.tensor_maps);
    const auto target = step.target ? Of(*step.target) : 0;
    const auto source = step.source ? Of(*step.source) : 0;
    const auto programs = All(step.programs);
    const auto structs = All(step.structs);
    return fb::CreateStep(builder_, step.kind, kernel, when, grid, block, cluster,
                          step.shared.get(), step.range.get(), step.grain.get(), step.programmatic,
                          args, maps, target, source, step.bytes.get(), step.value, programs,
                          structs);
  }

  const bool share_;
  flatbuffers::FlatBufferBuilder builder_;
  std::unordered_map<std::string, flatbuffers::uoffset_t> known_;
};

SharedTables::SharedTables(bool share) : writer_(std::make_unique<Writer>(share)) {}
SharedTables::~SharedTables() = default;

uint32_t SharedTables::Add(const fb::OpT& op) { return writer_->Of(op).o; }
uint32_t SharedTables::Add(const fb::TemplateT& row) { return writer_->Of(row).o; }
uint32_t SharedTables::Add(const fb::EvidenceT& row) { return writer_->Of(row).o; }
std::string_view SharedTables::Bytes() { return writer_->Bytes(); }

}  // namespace kbundle::builder
