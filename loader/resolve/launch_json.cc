// A resolution is numbers and bytes at offsets; people know a manifest's names. The rows that
// the numbers were computed from have these, so both are walked side by side, and a constant's
// bytes are read back as the type that the kernel reads.
#include "loader/resolve/launch_json.h"

#include <cstring>

#include "loader/open/index.h"
#include "loader/provider/provider.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

template <typename Numbers>
void WriteList(JsonWriter& json, const char* key, const Numbers& numbers) {
  json.Key(key).BeginArray();
  for (const auto number : numbers) json.Int(static_cast<int64_t>(number));
  json.EndArray();
}

template <typename T>
T At(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void WriteValue(JsonWriter& json, DType ctype, std::span<const std::byte> bytes) {
  switch (ctype) {
    case DType::kBool:
      return void(json.Unsigned(At<uint8_t>(bytes)));
    case DType::kI8:
      return void(json.Int(At<int8_t>(bytes)));
    case DType::kU8:
      return void(json.Unsigned(At<uint8_t>(bytes)));
    case DType::kI16:
      return void(json.Int(At<int16_t>(bytes)));
    case DType::kU16:
      return void(json.Unsigned(At<uint16_t>(bytes)));
    case DType::kI32:
      return void(json.Int(At<int32_t>(bytes)));
    case DType::kU32:
      return void(json.Unsigned(At<uint32_t>(bytes)));
    case DType::kI64:
      return void(json.Int(At<int64_t>(bytes)));
    case DType::kU64:
      return void(json.Unsigned(At<uint64_t>(bytes)));
    case DType::kF32:
      return void(json.Number(At<float>(bytes)));
    default:
      return void(json.Number(At<double>(bytes)));
  }
}

// What a launch writes there; null: nothing.
Pointer AddressAt(const ResolvedStep& step, uint32_t offset) {
  for (const StructPointer& place : step.struct_pointers) {
    if (place.offset == offset) return place.pointer;
  }
  return {};
}

}  // namespace

LaunchJson::LaunchJson(JsonWriter& json, const Bundle& bundle, const Problem& problem,
                       uint32_t variant)
    : json_(json),
      op_(OpOf(bundle, problem.op)),
      template_(*IndexOf(bundle).templates()->Get(
          IndexOf(bundle).variants()->Get(variant)->template_index())) {}

void LaunchJson::Write(const Resolution& resolution) {
  json_.Key("workspace").BeginArray();
  for (uint32_t i = 0; i < resolution.regions.size(); ++i) {
    json_.BeginObject().Key("region").Text(View(template_.regions()->Get(i)->name()));
    json_.Key("offset").Int(resolution.regions[i].offset);
    json_.Key("bytes").Int(resolution.regions[i].bytes).EndObject();
  }
  json_.EndArray().Key("steps").BeginArray();
  for (const ResolvedStep& step : resolution.steps) WriteStep(step);
  json_.EndArray();
}

void LaunchJson::WriteStep(const ResolvedStep& step) {
  json_.BeginObject().Key("step").Unsigned(step.number + 1).Key("kind");
  switch (step.kind) {
    case StepKind::kKernel:
      json_.Text("kernel");
      WriteKernel(step);
      break;
    case StepKind::kOwn:
      json_.Text(step.provider->OwnStepName());
      step.provider->ExplainOwn(step, *this);
      break;
    default:
      json_.Text(step.kind == StepKind::kCopy ? "copy" : "memset");
      Write("target", step.target);
      if (step.kind == StepKind::kCopy) Write("source", step.source);
      if (step.kind == StepKind::kMemset) json_.Key("value").Unsigned(step.value);
      json_.Key("bytes").Int(step.bytes);
  }
  json_.EndObject();
}

void LaunchJson::WriteKernel(const ResolvedStep& step) {
  json_.Key("kernel").Text(step.symbol).Key("blob").Unsigned(step.blob);
  if (step.has_range) {
    json_.Key("range").Int(step.range).Key("grain").Int(step.grain);
  } else {
    WriteList(json_, "grid", step.grid);
    WriteList(json_, "block", step.block);
    WriteList(json_, "cluster", step.cluster);
    json_.Key("shared").Int(step.shared).Key("programmatic").Bool(step.programmatic);
  }
  WriteArgs(step);
}

void LaunchJson::WriteArgs(const ResolvedStep& step) {
  const fb::Step& source = *template_.steps()->Get(step.number);
  json_.Key("args").BeginArray();
  for (uint32_t i = 0; i < step.args.size(); ++i) {
    const ResolvedArg& resolved = step.args[i];
    const fb::Arg& arg = *source.args()->Get(i);
    json_.BeginObject().Key("text").Text(View(arg.text()));
    if (resolved.kind == ResolvedArg::Kind::kPointer) {
      Write("at", resolved.pointer);
    } else if (resolved.kind == ResolvedArg::Kind::kTensorMap) {
      WriteTensorMap(step.tensor_maps[resolved.index]);
    } else if (resolved.kind == ResolvedArg::Kind::kStruct) {
      WriteStruct(*source.structs()->Get(arg.index()), step, resolved);
    } else {
      const auto constants = std::span(step.constants).subspan(resolved.index, resolved.size);
      WriteConstant(arg, constants);
    }
    json_.EndObject();
  }
  json_.EndArray();
}

void LaunchJson::WriteStruct(const fb::Struct& row, const ResolvedStep& step,
                             const ResolvedArg& resolved) {
  const auto bytes = std::span(step.structs).subspan(resolved.index, resolved.size);
  json_.Key("bytes").Unsigned(resolved.size).Key("fields").BeginArray();
  for (uint32_t i = 0; i < Count(row.fields()); ++i) {
    const fb::StructField& field = *row.fields()->Get(i);
    const fb::Arg& arg = *field.arg();
    json_.BeginObject().Key("text").Text(View(arg.text())).Key("offset").Unsigned(field.offset());
    if (arg.kind() <= static_cast<int>(ArgKind::kRegion)) {
      Write("at", AddressAt(step, resolved.index + field.offset()));
    } else {
      const auto size = static_cast<size_t>(SizeOf(static_cast<DType>(arg.ctype())));
      const bool array = static_cast<ArgKind>(arg.kind()) == ArgKind::kArray;
      WriteConstant(arg, bytes.subspan(field.offset(), array ? size * arg.count() : size));
    }
    json_.EndObject();
  }
  json_.EndArray();
}

void LaunchJson::WriteConstant(const fb::Arg& arg, std::span<const std::byte> bytes) {
  const auto ctype = static_cast<DType>(arg.ctype());
  json_.Key("ctype").Text(Name(ctype)).Key("value");
  if (static_cast<ArgKind>(arg.kind()) != ArgKind::kArray) return WriteValue(json_, ctype, bytes);
  json_.BeginArray();
  const auto size = static_cast<size_t>(SizeOf(ctype));
  for (; bytes.size() >= size; bytes = bytes.subspan(size)) WriteValue(json_, ctype, bytes);
  json_.EndArray();
}

void LaunchJson::Write(const char* key, const Pointer& pointer) {
  json_.Key(key);
  if (pointer.from == Pointer::From::kNull) return void(json_.Null());
  json_.BeginObject();
  if (pointer.from == Pointer::From::kWorkspace) {
    json_.Key("workspace").Int(pointer.index);
  } else {
    const bool operand = pointer.from == Pointer::From::kOperand;
    const auto* tensors = operand ? op_.operands() : op_.results();
    json_.Key(operand ? "operand" : "result");
    json_.Text(View(tensors->Get(static_cast<uint32_t>(pointer.index))->name()));
    json_.Key("offset").Int(pointer.offset);
  }
  json_.EndObject();
}

void LaunchJson::WriteTensorMap(const ResolvedTensorMap& map) {
  const std::span dims(map.dims);
  Write("tensor_map", map.tensor);
  json_.Key("dtype").Text(Name(map.dtype));
  WriteList(json_, "dims", dims.first(map.rank));
  WriteList(json_, "strides", std::span(map.strides).first(map.rank - 1));
  WriteList(json_, "box", std::span(map.box).first(map.rank));
  WriteList(json_, "element_strides", std::span(map.element_strides).first(map.rank));
  json_.Key("swizzle").Unsigned(map.swizzle).Key("interleave").Unsigned(map.interleave);
  json_.Key("l2").Unsigned(map.l2).Key("fill").Unsigned(map.fill);
}

}  // namespace kbundle
