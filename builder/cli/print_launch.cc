// Prints from the JSON that the loader explains itself with, and computes no number of its own:
// what a person reads, what a tool reads and what is launched come from one resolution.
#include "builder/cli/print_launch.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace kbundle::builder {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string Bytes(const OrderedJson& number) { return Grouped(number.get<uint64_t>()) + " bytes"; }

// "x", "x + 512 bytes", "workspace + 0 bytes", "null".
std::string Place(const OrderedJson& pointer) {
  if (pointer.is_null()) return "null";
  if (pointer.contains("workspace")) return "workspace + " + Bytes(pointer["workspace"]);
  const char* key = pointer.contains("operand") ? "operand" : "result";
  const std::string name = pointer[key].get<std::string>();
  const bool start = pointer["offset"] == 0;
  return start ? name : fmt::format("{} + {}", name, Bytes(pointer["offset"]));
}

// "4 x 1 x 1".
std::string Extent(const OrderedJson& numbers) {
  std::vector<std::string> parts;
  for (const OrderedJson& number : numbers) parts.push_back(number.dump());
  return Joined(parts, " x ");
}

std::string Argument(const OrderedJson& arg) {
  const std::string text = arg["text"].get<std::string>();
  if (arg.contains("at")) return fmt::format("{} = {}", text, Place(arg["at"]));
  if (arg.contains("fields")) {
    std::vector<std::string> fields;
    for (const OrderedJson& field : arg["fields"]) fields.push_back(Argument(field));
    return fmt::format("{} = {{{}}}", text, fmt::join(fields, ", "));
  }
  if (!arg.contains("tensor_map")) return fmt::format("{} = {}", text, arg["value"].dump());
  return fmt::format("{} = tensor map of {}: {}, boxes of {}", text, Place(arg["tensor_map"]),
                     Extent(arg["dims"]), Extent(arg["box"]));
}

std::string Matrices(const OrderedJson& step) {
  std::vector<std::string> parts;
  for (const char* key : {"d", "a", "b", "c", "aux", "bias"}) {
    if (!step.contains(key)) continue;
    parts.push_back(fmt::format("{} = {} ({}, rows {} apart)", key, Place(step[key]["at"]),
                                step[key]["dtype"].get<std::string>(),
                                step[key]["leading"].dump()));
  }
  return Joined(parts, ", ");
}

// What is said of a step behind its number.
std::vector<std::string> Describe(const OrderedJson& step) {
  const std::string kind = step["kind"].get<std::string>();
  if (kind == "memset") {
    return {fmt::format("memset {} with {}, {}", Place(step["target"]), step["value"].dump(),
                        Bytes(step["bytes"]))};
  }
  if (kind == "copy") {
    return {fmt::format("copy {} from {}, {}", Place(step["target"]), Place(step["source"]),
                        Bytes(step["bytes"]))};
  }
  if (kind == "product") {
    return {fmt::format("product m x n x k = {}, batch {}, epilogue {}", Extent(step["mnk"]),
                        step["batch"].dump(), step["epilogue"].dump()),
            Matrices(step)};
  }
  std::vector<std::string> lines = {kind + " " + step["kernel"].get<std::string>()};
  if (step.contains("grid")) {
    lines.push_back(fmt::format("grid {}, block {}, cluster {}, {} of dynamic shared memory{}",
                                Extent(step["grid"]), Extent(step["block"]),
                                Extent(step["cluster"]), Bytes(step["shared"]),
                                step["programmatic"] == true ? ", programmatic" : ""));
  } else if (step.contains("range")) {
    lines.push_back(
        fmt::format("range {}, at least {} at a time", step["range"].dump(), step["grain"].dump()));
  }
  std::vector<std::string> args;
  for (const OrderedJson& arg : step["args"]) args.push_back(Argument(arg));
  lines.push_back(Joined(args, ", "));
  return lines;
}

}  // namespace

void PrintLaunch(const Terminal& terminal, const std::string& explained,
                 const std::string& device) {
  const OrderedJson launch = OrderedJson::parse(explained)["launch"];
  if (launch.is_null()) return;
  if (launch.contains("error")) {
    return terminal.Line("launch     " + terminal.Paint(Terminal::Style::kBad, "none") + ": " +
                         launch["error"].get<std::string>());
  }
  std::string head = fmt::format("addresses at multiples of {} bytes", launch["alignment"].dump());
  if (!device.empty())
    head += fmt::format(", {} multiprocessors {}", launch["sm_count"].dump(), device);
  terminal.Line("launch     " + head);
  for (const OrderedJson& region : launch["workspace"]) {
    terminal.Line(fmt::format("  workspace + {}: {}, {}", region["offset"].dump(),
                              region["region"].get<std::string>(), Bytes(region["bytes"])));
  }
  for (const OrderedJson& step : launch["steps"]) {
    std::string indent = fmt::format("  step {}  ", step["step"].dump());
    for (const std::string& line : Describe(step)) {
      terminal.Line(indent + line);
      indent.assign(indent.size(), ' ');
    }
  }
  if (launch["steps"].empty()) terminal.Line("  nothing to launch");
}

}  // namespace kbundle::builder
