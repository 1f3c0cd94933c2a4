// Promise: an index that is structurally sound but does not make sense is refused by Open, and the
// sentence names element, value and limit; opened op by op, when the op is first asked for.
#include <gtest/gtest.h>

#include "support/bundle_maker.h"
#include "support/lie.h"

namespace kbundle {
namespace {

using testing::Lie;
using testing::SampleMaker;

uint32_t Op(Opcode opcode, uint32_t operand = 0) {
  return static_cast<uint32_t>(opcode) | operand << 8;
}

// Replaces the program of demo.scale's `require`.
void SetRequire(fb::IndexT& index, std::vector<uint32_t> code) {
  *index.ops[0]->require[0]->program =
      fb::Span(static_cast<uint32_t>(index.code.size()), static_cast<uint32_t>(code.size()));
  index.code.insert(index.code.end(), code.begin(), code.end());
}

fb::Variant WithTypes(const fb::Variant& v, uint64_t types) {
  return {types,        v.op(),      v.template_index(), v.rank(),
          v.tunables(), v.kernels(), v.target(),         v.flags()};
}

fb::Blob MovedBlob(const fb::Blob& b, uint64_t offset) {
  return {offset, b.stored_size(), b.size(), b.xxh3(), b.sha256(), b.base(), b.format()};
}

// As the builder writes such a template; its kernel rows are left as they are.
void BecomeTriton(fb::IndexT& index) {
  index.providers.push_back("triton");
  index.templates[0]->provider = 2;
  for (auto& step : index.templates[0]->steps) {
    step->block.clear();
    step->shared.reset();
  }
}

const Lie kLies[] = {
    {"NoName", [](auto& i) { i.name = ""; }, "bundle name is empty"},
    {"LongName", [](auto& i) { i.name.assign(5000, 'n'); }, "at most 4096",
     StatusCode::kResourceExhausted},
    {"ControlCharacterInAName", [](auto& i) { i.ops[0]->name = "demo\x1b[2J"; },
     "control character 0x1b"},
    {"C1ControlCharacterInAName",
     [](auto& i) {
       i.ops[0]->name =
           "demo\xc2\x9b"
           "2J";
     },
     "control character 0x9b"},
    {"NameThatIsNotUtf8", [](auto& i) { i.ops[0]->name = "demo\xff"; },
     "name is not UTF-8: byte 4 is 0xff"},
    {"TextThatIsNotUtf8", [](auto& i) { i.ops[0]->summary = "\xe2\x82"; },
     "summary is not UTF-8: byte 0 is 0xe2"},
    {"TargetThatIsNotItsName", [](auto& i) { i.targets[0]->minor = 6; }, "not what its name says"},
    {"UnknownTarget", [](auto& i) { i.targets[0]->name = "sm_x"; }, "is no target"},
    {"TwiceTheSameTarget",
     [](auto& i) {
       i.targets[1]->name = "sm_80";
       i.targets[1]->major = 8;
       i.targets[1]->minor = 0;
       i.targets[1]->feature = 0;
     },
     "appears twice"},
    {"OpsNotSorted", [](auto& i) { i.ops[0]->name = "zzz"; }, "not sorted or not unique"},
    {"UnknownDType", [](auto& i) { i.ops[0]->types[0]->dtypes[0] = 99; }, "dtype 99"},
    {"TypeParameterThatDoesNotExist",
     [](auto& i) { *i.ops[0]->operands[0]->type = fb::TypeRef(3, 0); },
     "type parameter 3 does not exist, there are 1"},
    {"SymbolThatDoesNotExist",
     [](auto& i) { i.ops[0]->operands[0]->dims[1] = fb::Dim(9, 0, 1, fb::Span(0, 0)); },
     "symbol 9 of 2"},
    {"TwoEllipses",
     [](auto& i) { i.ops[0]->operands[0]->dims[1] = fb::Dim(1, 1, 1, fb::Span(0, 0)); },
     "2 ellipses"},
    {"TooManyDims",
     [](auto& i) { i.ops[0]->operands[0]->dims.resize(17, i.ops[0]->operands[0]->dims[1]); },
     "17 dims, at most 16", StatusCode::kResourceExhausted},
    {"SymbolThatNobodyBinds", [](auto& i) { i.ops[0]->symbols.push_back("Q"); },
     "no operand binds symbol 'Q'"},
    {"OperandTwice", [](auto& i) { i.ops[0]->operands[1]->name = "x"; }, "'x' appears twice"},
    {"DefaultOfAnotherType", [](auto& i) { i.ops[0]->attributes[0]->integers = {1}; },
     "default is of another type"},
    {"EnumDefaultOutside", [](auto& i) { i.ops[0]->attributes[1]->integers = {2}; },
     "default 2 does not exist, there are 2"},
    {"UnknownAttributeType", [](auto& i) { i.ops[0]->attributes[0]->type = 8; },
     "unknown attribute type 8"},
    {"ArrayTooLong", [](auto& i) { i.ops[1]->attributes[0]->max_len = 65; }, "at most 64",
     StatusCode::kResourceExhausted},
    {"CoordinateOutside", [](auto& i) { i.ops[0]->coordinates[0] = 5; },
     "attribute 3 does not exist"},
    {"CoordinateOfAFloat", [](auto& i) { i.ops[0]->coordinates[0] = 2; }, "attribute is no int"},
    {"UnknownVmapRule", [](auto& i) { i.ops[0]->vmap = 3; }, "vmap rule 3"},
    {"AliasOutside", [](auto& i) { i.ops[0]->results[0]->alias = 7; }, "alias 7 does not exist"},
    {"StackUnderflow", [](auto& i) { SetRequire(i, {Op(Opcode::kAdd)}); },
     "stack underflow: opcode 32 needs 2 values and finds 0"},
    {"StackTooDeep", [](auto& i) { SetRequire(i, std::vector<uint32_t>(33, Op(Opcode::kDim))); },
     "33 stack slots, at most 32", StatusCode::kResourceExhausted},
    {"ValuesLeftOver",
     [](auto& i) {
       SetRequire(i, {Op(Opcode::kDim), Op(Opcode::kDim)});
     },
     "leaves 2 values, not 1"},
    {"ProgramTooLong",
     [](auto& i) {
       std::vector<uint32_t> code{Op(Opcode::kDim)};
       code.resize(257, Op(Opcode::kNot));
       SetRequire(i, code);
     },
     "257 instructions, at most 256", StatusCode::kResourceExhausted},
    {"UnknownOpcode", [](auto& i) { SetRequire(i, {200}); }, "unknown opcode 200"},
    {"OpcodeInAGap",
     [](auto& i) {
       SetRequire(i, {Op(Opcode::kDim), 40});
     },
     "unknown opcode 40"},
    {"OperatorWithAnOperand",
     [](auto& i) {
       SetRequire(i, {Op(Opcode::kDim), Op(Opcode::kNot, 1)});
     },
     "carries operand 1"},
    {"ProgramOutside", [](auto& i) { *i.ops[0]->require[0]->program = fb::Span(0xfffffff0u, 100); },
     "of "},
    {"EmptyRule", [](auto& i) { *i.ops[0]->require[0]->program = fb::Span(0, 0); },
     "program is missing"},
    {"DimOutside", [](auto& i) { SetRequire(i, {Op(Opcode::kDim, 2)}); },
     "symbol 2 does not exist"},
    {"ConstantOutside", [](auto& i) { SetRequire(i, {Op(Opcode::kConst, 1u << 20)}); },
     "constant 1048576"},
    {"TunableInAnInterface", [](auto& i) { SetRequire(i, {Op(Opcode::kTunable)}); },
     "for variants, not for an op's interface"},
    {"ResultInAnInterface", [](auto& i) { SetRequire(i, {Op(Opcode::kRank, 2)}); },
     "tensor 2 does not exist"},
    {"FloatAttributeInAProgram", [](auto& i) { SetRequire(i, {Op(Opcode::kAttribute, 0)}); },
     "does not fit attribute 'scale'"},
    {"LetThatRefersForward",
     [](auto& i) {
       auto& lets = i.templates[3]->lets;
       *lets[0]->program = fb::Span(static_cast<uint32_t>(i.code.size()), 1);
       i.code.push_back(Op(Opcode::kLet, 0));
     },
     "let (only earlier ones) 0 does not exist"},
    {"WorkspaceThatDependsOnTheDevice",
     [](auto& i) {
       *i.templates[3]->regions[0]->bytes = fb::Span(static_cast<uint32_t>(i.code.size()), 1);
       i.code.push_back(Op(Opcode::kSmCount));
     },
     "sm_count is only for grids"},
    {"NoSteps", [](auto& i) { i.templates[0]->steps.clear(); }, "without steps"},
    {"UnknownStepKind", [](auto& i) { i.templates[0]->steps[0]->kind = 9; }, "unknown step kind 9"},
    {"ProviderThatDoesNotExist", [](auto& i) { i.templates[0]->provider = 9; },
     "provider 9 does not exist, there are 2"},
    {"ProviderThatThisReaderDoesNotKnow", [](auto& i) { i.providers[1] = "warped"; },
     "code of provider 'warped', which this reader does not know", StatusCode::kUnimplemented},
    {"ProvidersNotSorted", [](auto& i) { std::swap(i.providers[0], i.providers[1]); },
     "not sorted or not unique"},
    {"OwnStepOfAProviderThatHasNone",
     [](auto& i) {
       fb::StepT& step = *i.templates[0]->steps[0];
       step.kind = static_cast<uint8_t>(StepKind::kOwn);
       step.grid.clear();
       step.block.clear();
     },
     "provider cuda has no steps of its own"},
    {"ProgramsOfAKernel",
     [](auto& i) { i.templates[0]->steps[0]->programs = i.templates[0]->steps[0]->grid; },
     "programs without a place are for own steps"},
    {"ExpressionOfAChoiceThatIsNone",
     [](auto& i) {
       i.ops[0]->expressions.push_back(std::make_unique<fb::ExpressionT>());
       i.ops[0]->expressions[0]->attribute = 1;
       i.ops[0]->expressions[0]->name = "twisted";
     },
     "its attribute has no such choice"},
    {"FourGridDims",
     [](auto& i) {
       auto& grid = i.templates[0]->steps[0]->grid;
       grid.resize(4, grid[0]);
     },
     "grid has 4 dims, allowed 1 to 3"},
    {"OffsetWithoutItsFeatureBit",
     [](auto& i) {
       i.templates[0]->steps[0]->args[0]->program =
           std::make_unique<fb::Span>(static_cast<uint32_t>(i.code.size()), 1);
       i.code.push_back(Op(Opcode::kDim));
     },
     "offsets of pointers without their feature bit"},
    {"OffsetThatIsNoProgram",
     [](auto& i) {
       i.templates[0]->steps[0]->args[0]->program =
           std::make_unique<fb::Span>(static_cast<uint32_t>(i.code.size()), 1);
       i.code.push_back(Op(Opcode::kAdd));
     },
     "stack underflow"},
    {"BitsOfAnAttributeThatIsNoFloat", [](auto& i) { SetRequire(i, {Op(Opcode::kFloatBits, 1)}); },
     "does not fit attribute"},
    {"ArgumentOfAResultThatDoesNotExist",
     [](auto& i) { i.templates[0]->steps[0]->args[0]->index = 4; }, "result 4 does not exist"},
    {"ArgumentsTooBig",
     [](auto& i) {
       auto& args = i.templates[3]->steps[0]->args;
       i.ops[1]->attributes[0]->max_len = 64;
       args[3]->count = 64;
       for (int k = 0; k < 9; ++k) args.push_back(std::make_unique<fb::ArgT>(*args[3]));
     },
     "argument bytes, at most 4096", StatusCode::kResourceExhausted},
    {"UnknownArgumentKind", [](auto& i) { i.templates[0]->steps[0]->args[0]->kind = 9; },
     "argument kind 9"},
    {"StructThatIsNotThere", [](auto& i) { i.templates[0]->steps[0]->args[0]->kind = 8; },
     "struct 0 does not exist"},
    {"TemplateOfAnotherOp", [](auto& i) { i.templates[0]->op = 1; }, "says op 1"},
    {"TwoTemplatesOfOneName", [](auto& i) { i.templates[1]->name = "vec"; }, "'vec' appears twice"},
    {"TemplateThatNobodyOwns", [](auto& i) { --i.ops[1]->template_count; }, "3 of 4 templates"},
    {"VariantsNotSorted", [](auto& i) { std::swap(i.variants[0], i.variants[1]); },
     "does not grow"},
    {"VariantOfOtherTypes", [](auto& i) { i.variants[0] = WithTypes(i.variants[0], 12); },
     "has another op, target or types"},
    {"EntriesNotSorted", [](auto& i) { std::swap(i.entries[0], i.entries[1]); }, "entry"},
    {"EntriesTwice", [](auto& i) { i.entries[1] = i.entries[0]; }, "not sorted or not unique"},
    {"EntryBeyondTheVariants",
     [](auto& i) {
       const fb::Entry& e = i.entries.back();
       i.entries.back() = fb::Entry(e.types(), e.op(), e.target(), 0, e.first(), 0xffffffff);
     },
     "last variant"},
    {"VariantsWithoutAnEntry", [](auto& i) { i.entries.pop_back(); }, "entries cover"},
    {"KernelOfABlobThatDoesNotExist",
     [](auto& i) { i.kernels[0] = fb::Kernel(1000, 0, 0, 0, 0, 0, 0, 0); },
     "blob 1000 does not exist"},
    {"ThreadsWhereTheManifestSaysThem",
     [](auto& i) { i.kernels[0] = fb::Kernel(0, 0, 0, 0, 0, 0, 128, 0); },
     "threads and dynamic shared memory beside the code"},
    {"TritonWithoutThreads",
     [](auto& i) {
       BecomeTriton(i);
       i.kernels[i.variants[0].kernels()] = fb::Kernel(0, 0, 0, 0, 0, 0, 0, 0);
     },
     "0 threads, allowed are multiples of 32"},
    {"TritonWithABlock",
     [](auto& i) {
       i.providers.push_back("triton");
       i.templates[0]->provider = 2;
     },
     "a triton step has a grid and none of block"},
    {"CubinForTheCpu",
     [](auto& i) {
       fb::Blob& b = i.blobs[0];
       b = fb::Blob(b.offset(), b.stored_size(), b.size(), b.xxh3(), b.sha256(), b.base(), 3);
     },
     "format 3 for this target"},
    {"BlobsWithAHole",
     [](auto& i) { i.blobs[1] = MovedBlob(i.blobs[1], i.blobs[1].offset() + 64); },
     "no overlap, no hole"},
    {"BlobsThatOverlap", [](auto& i) { i.blobs[1] = MovedBlob(i.blobs[1], i.blobs[0].offset()); },
     "no overlap, no hole"},
    {"BlobMissing", [](auto& i) { i.blobs.pop_back(); }, "bytes after the last blob"},
    {"BombByIndex",
     [](auto& i) {
       fb::Blob& b = i.blobs[0];
       b = fb::Blob(b.offset(), b.stored_size(), 0x80000000u, b.xxh3(), b.sha256(), b.base(), 1);
     },
     "at most 268435456", StatusCode::kResourceExhausted},
    {"DeltaOfADelta",
     [](auto& i) {
       fb::Blob& b = i.blobs[2];
       b = fb::Blob(b.offset(), b.stored_size(), b.size(), b.xxh3(), b.sha256(), 1, 1);
     },
     "its base, blob 1, is itself a delta"},
    {"DeltaOfItself",
     [](auto& i) {
       fb::Blob& b = i.blobs[0];
       b = fb::Blob(b.offset(), b.stored_size(), b.size(), b.xxh3(), b.sha256(), 0, 1);
     },
     "is itself a delta"},
    {"RanOnABlobThatDoesNotExist", [](auto& i) { i.ran_on[0] = fb::RanOn(999, 0); },
     "blob 999 does not exist"},
    {"RanOnTwice", [](auto& i) { i.ran_on.push_back(i.ran_on[0]); }, "not sorted or not unique"},
    {"ProblemWithoutItsOperands",
     [](auto& i) { i.ops[0]->problems.push_back(std::make_unique<fb::ProblemT>()); },
     "0 operands, the op has 2"},
};

class Verify : public ::testing::TestWithParam<Lie> {};

TEST_P(Verify, RefusesTheLieAndNamesIt) { testing::ExpectLieRefused(SampleMaker(64), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Lies, Verify, ::testing::ValuesIn(kLies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kbundle
