// Prints what DescribeJson says and reads nothing of the bundle by itself, so the text and --json
// cannot differ. One op by name gets a row for each variant; all together a row for each template
// and target, or hundreds of variants would hide the ops.
#include "builder/cli/inspect.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "builder/library/library.h"
#include "builder/report/page.h"
#include "builder/support/files.h"
#include "builder/support/new_file.h"
#include "kbundle/describe.h"

// Reads the same JSON that --json prints, so that the two never say different things.
namespace kbundle::builder {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Sizes of a set of code objects. A base that only deltas refer to counts where they are used.
struct Sizes {
  size_t objects = 0, deltas = 0;
  uint64_t raw = 0, stored = 0;

  std::string Ratio() const {
    return stored == 0 ? "-"
                       : Fixed(static_cast<double>(raw) / static_cast<double>(stored), 1) + "x";
  }
};

Sizes SizesOf(const OrderedJson& blobs, const std::set<int64_t>& numbers) {
  Sizes sizes;
  for (int64_t number : numbers) {
    const OrderedJson& blob = blobs[static_cast<size_t>(number)];
    ++sizes.objects;
    sizes.deltas += blob["base"] >= 0 ? 1 : 0;
    sizes.raw += blob["bytes"].get<uint64_t>();
    sizes.stored += blob["stored_bytes"].get<uint64_t>();
  }
  return sizes;
}

void AddBlobs(const OrderedJson& variant, std::set<int64_t>& blobs) {
  for (const OrderedJson& kernel : variant["kernels"]) {
    if (kernel["blob"] >= 0) blobs.insert(kernel["blob"].get<int64_t>());
  }
}

std::string RanOnText(const OrderedJson& devices) {
  return devices.empty() ? "never run" : Joined(devices.get<std::vector<std::string>>(), ", ");
}

// "(x: T[rows.., K], mask?: u8[..]; scale: float = 1.0) -> (y: T[rows.., K])"
std::string Signature(const OrderedJson& op) {
  std::vector<std::string> operands, attributes, results;
  for (const OrderedJson& operand : op["operands"]) {
    operands.push_back(operand["name"].get<std::string>() + (operand["optional"] ? "?: " : ": ") +
                       operand["shape"].get<std::string>());
  }
  for (const OrderedJson& attribute : op["attributes"]) {
    std::string text =
        attribute["name"].get<std::string>() + ": " + attribute["type"].get<std::string>();
    if (!attribute["required"]) text += " = " + attribute["default"].dump();
    attributes.push_back(text);
  }
  for (const OrderedJson& result : op["results"]) {
    std::string text = result["name"].get<std::string>() + (result["conditional"] ? "?: " : ": ") +
                       result["shape"].get<std::string>();
    const auto alias = result["alias"].get<int64_t>();
    if (alias >= 0)
      text += " over " + op["operands"][static_cast<size_t>(alias)]["name"].get<std::string>();
    results.push_back(text);
  }
  const std::string options = attributes.empty() ? "" : "; " + Joined(attributes, ", ");
  return "(" + Joined(operands, ", ") + options + ") -> (" + Joined(results, ", ") + ")";
}

void PrintOpHead(const Terminal& terminal, const OrderedJson& op) {
  terminal.Line("");
  terminal.Line(terminal.Paint(Terminal::Style::kBold, op["name"].get<std::string>()) + "  " +
                op["summary"].get<std::string>());
  terminal.Line("  " + Signature(op));
  for (const OrderedJson& type : op["types"]) {
    std::string text = "  " + type["name"].get<std::string>() + " in " +
                       Joined(type["dtypes"].get<std::vector<std::string>>(), ", ");
    if (!type["attribute"].is_null()) text += " (by " + type["attribute"].get<std::string>() + ")";
    terminal.Line(text);
  }
  terminal.Line("  interface " + op["interface"].get<std::string>() + ", vmap " +
                op["vmap"].get<std::string>() + ", " + std::to_string(op["problems"].size()) +
                " listed problems");
}

// One row per target and template.
void PrintOverview(const Terminal& terminal, const OrderedJson& op, const OrderedJson& blobs) {
  struct Group {
    int variants = 0, ran = 0;
    std::set<int64_t> blobs;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const OrderedJson& variant : op["variants"]) {
    Group& group =
        groups[{variant["target"].get<std::string>(), variant["template"].get<std::string>()}];
    ++group.variants;
    group.ran += variant["ran_on"].empty() ? 0 : 1;
    AddBlobs(variant, group.blobs);
  }
  Table table({"TARGET", "TEMPLATE", "VARIANTS", "OBJECTS", "RAW", "STORED", "RATIO", "RAN"}, "  ");
  for (size_t column = 2; column < 7; ++column) table.Right(column);
  for (const auto& [key, group] : groups) {
    const Sizes sizes = SizesOf(blobs, group.blobs);
    table.Row({key.first, key.second, std::to_string(group.variants), std::to_string(sizes.objects),
               Grouped(sizes.raw), Grouped(sizes.stored), sizes.Ratio(),
               group.ran == 0
                   ? "never run"
                   : std::to_string(group.ran) + " of " + std::to_string(group.variants)});
  }
  table.Print(terminal);
}

// One row per variant.
void PrintVariants(const Terminal& terminal, const OrderedJson& op, const OrderedJson& blobs) {
  Table table({"VARIANT", "REGS", "SPILL", "OBJECT", "RAW", "STORED", "RATIO", "RAN ON"}, "  ");
  for (size_t column = 1; column < 7; ++column) table.Right(column);
  for (const OrderedJson& variant : op["variants"]) {
    std::set<int64_t> numbers;
    AddBlobs(variant, numbers);
    uint64_t spill = 0;
    for (const OrderedJson& kernel : variant["kernels"]) {
      if (kernel.contains("spill_bytes"))
        spill = std::max(spill, kernel["spill_bytes"].get<uint64_t>());
    }
    std::vector<std::string> names;
    for (int64_t number : numbers) {
      const auto base = blobs[static_cast<size_t>(number)]["base"].get<int64_t>();
      names.push_back(std::to_string(number) + (base >= 0 ? "<" + std::to_string(base) : ""));
    }
    const Sizes sizes = SizesOf(blobs, numbers);
    table.Row({variant["id"].get<std::string>(), variant["registers"].dump(), std::to_string(spill),
               names.empty() ? "-" : Joined(names, "+"), Grouped(sizes.raw), Grouped(sizes.stored),
               sizes.Ratio(), RanOnText(variant["ran_on"])});
  }
  table.Print(terminal);
  if (!op["problems"].empty()) terminal.Line("  problems");
  for (const OrderedJson& problem : op["problems"])
    terminal.Line("    " + problem["text"].get<std::string>());
}

void PrintSizes(const Terminal& terminal, const Sizes& sizes) {
  terminal.Line("objects     " + std::to_string(sizes.objects) + ", " +
                std::to_string(sizes.deltas) + " of them deltas: " + Grouped(sizes.raw) +
                " bytes raw, " + Grouped(sizes.stored) + " stored, " + sizes.Ratio());
}

// A row for each file of a library.
void PrintParts(const Terminal& terminal, const OrderedJson& library) {
  std::vector<std::set<int64_t>> blobs(library["parts"].size());
  for (size_t i = 0; i < library["blobs"].size(); ++i)
    blobs[library["blobs"][i]["part"].get<size_t>()].insert(static_cast<int64_t>(i));
  Table table({"PART", "FILE", "BYTES", "OBJECTS", "RAW", "STORED", "RATIO"}, "  ");
  for (size_t column = 2; column < 7; ++column) table.Right(column);
  for (size_t i = 0; i < blobs.size(); ++i) {
    const OrderedJson& part = library["parts"][i];
    const Sizes sizes = SizesOf(library["blobs"], blobs[i]);
    table.Row({Joined(part["targets"].get<std::vector<std::string>>(), ", "),
               part["path"].get<std::string>(), Grouped(part["file_bytes"].get<uint64_t>()),
               std::to_string(sizes.objects), Grouped(sizes.raw), Grouped(sizes.stored),
               sizes.Ratio()});
  }
  table.Print(terminal);
}

void PrintHead(const Terminal& terminal, const OrderedJson& bundle, const Parts& library) {
  const size_t files = library.all().size();
  terminal.Line(terminal.Paint(Terminal::Style::kBold, library.first().path()) + "  \"" +
                bundle["name"].get<std::string>() + "\", " +
                (files > 1 ? Counted(files, "file") + ", " : "") +
                Grouped(bundle["file_bytes"].get<uint64_t>()) + " bytes, content " +
                bundle["content_id"].get<std::string>());
  std::set<int64_t> all;
  for (size_t i = 0; i < bundle["blobs"].size(); ++i) all.insert(static_cast<int64_t>(i));
  terminal.Line("targets     " + Joined(bundle["targets"].get<std::vector<std::string>>(), ", "));
  PrintSizes(terminal, SizesOf(bundle["blobs"], all));
  terminal.Line("ran on      " + RanOnText(bundle["devices"]));
  for (const auto& [key, value] : bundle["provenance"].items()) {
    terminal.Line("made with   " + key + " " + value.get<std::string>());
  }
  for (const std::string& line : AbsentLines(library.absent()))
    terminal.Line("not here    " + line);
  if (IsDivided(library)) PrintParts(terminal, bundle);
}

}  // namespace

int InspectCommand::Draw(const Parts& library, const Terminal& terminal) const {
  if (terminal.json() || !op.empty()) {
    return terminal.Usage("inspect", "--html draws all of a bundle; leave out --json and --op");
  }
  const Result<std::string> page = BundlePage(library);
  if (!page.ok()) return terminal.Fail(page.status());
  if (html == "-") {
    terminal.Out(*page);
    return kExitOk;
  }
  Status written = force ? Status() : CheckOutput(html, kBundlePageBegins, "page of a bundle");
  if (written.ok()) written = PublishFile(html, *page, Durability::kCrashOnly);
  if (!written.ok()) return terminal.Fail(written);
  terminal.Line(html + ": " + Grouped(page->size()) + " bytes; open it in a browser");
  return kExitOk;
}

int InspectCommand::Run(const Terminal& terminal) const {
  const auto opened = OpenLibrary(file);
  if (!opened.ok()) return terminal.Fail(opened.status());
  if (!html.empty()) return Draw(**opened, terminal);
  const auto text = DescribeJson(**opened, op, Detail::kWhole);
  if (!text.ok()) return terminal.Fail(text.status());
  if (terminal.json()) {
    terminal.Line(*text);
    return kExitOk;
  }
  const OrderedJson bundle = OrderedJson::parse(*text);
  PrintHead(terminal, bundle, **opened);
  for (const OrderedJson& entry : bundle["ops"]) {
    PrintOpHead(terminal, entry);
    op.empty() ? PrintOverview(terminal, entry, bundle["blobs"])
               : PrintVariants(terminal, entry, bundle["blobs"]);
  }
  return kExitOk;
}

}  // namespace kbundle::builder
