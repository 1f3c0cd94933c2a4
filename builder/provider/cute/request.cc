// What only a problem decides is null in the request, so the compiler makes it dynamic; what a
// point decides is a number, and static. Conditions and lets are in it as well, though the child
// reads none of them: the problems drawn depend on them, and so does what is learned.
#include "builder/provider/cute/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "builder/provider/cute/kernel.h"
#include "builder/provider/cute/manifest.h"
#include "builder/provider/cute/problems.h"
#include "builder/provider/cute/share.h"
#include "builder/provider/cute/subject.h"
#include "builder/score/tree.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

constexpr int kFirstExactMajor = 9;  // sm_90 and later: with the "a"

// Bytes of shared memory that a block may have, as the device's attribute.
int SharedBytes(const Target& target) {
  const int version = target.major * 10 + target.minor;
  if (version == 80 || version == 87) return 163 << 10;
  return target.major >= 9 && target.major <= 11 ? 227 << 10 : 99 << 10;
}

std::string Grouped(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  return plain ? text : "(" + text + ")";
}

// Bytes from a tensor's first element to behind its last: what a tensor map's flags depend on.
std::string SpanOf(const CuteArgument& argument, int64_t element_bytes) {
  std::string text = "1";
  for (size_t axis = 0; axis < argument.shape.size(); ++axis) {
    text += fmt::format(" + ({} - 1) * {}", Grouped(argument.shape[axis].text),
                        Grouped(argument.strides[axis].text));
  }
  return fmt::format("({}) * {}", text, element_bytes);
}

class RequestWriter {
 public:
  RequestWriter(const CuteSubject& subject, const CuteKernel& kernel)
      : op_(*subject.op), variant_(subject.variant), point_(subject.point), kernel_(kernel) {
    bindings_.types = point_.types;
    bindings_.tunables = point_.tunables;
    bindings_.lets = FixedLets(variant_, point_);
  }

  Result<Json> Sizes(const std::vector<Program>& programs) const {
    Json sizes = Json::array();
    for (const Program& program : programs) {
      if (!IsFixed(program, variant_)) {
        sizes.push_back(nullptr);
        continue;
      }
      KB_ASSIGN_OR_RETURN(const int64_t value, Evaluate(program, bindings_));
      sizes.push_back(value);
    }
    return sizes;
  }

  Result<Json> Argument(const CuteArgument& argument) const {
    if (!IsPointer(argument.arg)) return Json{{"type", Name(argument.arg.ctype)}};
    KB_ASSIGN_OR_RETURN(Json shape, Sizes(argument.shape));
    KB_ASSIGN_OR_RETURN(Json strides, Sizes(argument.strides));
    return Json{{"name", CuteName(argument.arg, op_, variant_)},
                {"dtype", Name(DTypeOf(argument.arg, op_, variant_, point_.types))},
                {"shape", std::move(shape)},
                {"strides", std::move(strides)},
                {"null", argument.null}};
  }

  // By argument, null of a number: an atom, how many bytes the tensor spans.
  Json Spans() const {
    Json spans = Json::array();
    for (const CuteArgument& argument : kernel_.arguments) {
      spans.push_back(IsPointer(argument.arg) ? Json(SpanOf(argument, ElementBytes(argument)))
                                              : Json());
    }
    return spans;
  }

  // What expressions may be made of: symbols, lets, and the sizes of what the kernel sees.
  std::vector<std::string> Atoms() const {
    std::vector<std::string> atoms;
    const auto add = [&](const std::string& text) {
      const bool known = std::find(atoms.begin(), atoms.end(), text) != atoms.end();
      if (!known && CompileText(text, op_, variant_, kernel_.names, StepPlace("")).ok()) {
        atoms.push_back(text);
      }
    };
    for (const std::string& symbol : op_.symbols) add(symbol);
    for (const NamedProgram& let : variant_.lets) {
      if (!let.name.empty()) add(let.name);
    }
    for (const Attribute& attribute : op_.attributes) add(attribute.name);
    for (const CuteArgument& argument : kernel_.arguments) {
      if (argument.arg.kind == ArgKind::kInteger) add(argument.arg.program.text);
      for (const Program& size : argument.shape) add(size.text);
      for (const Program& stride : argument.strides) add(stride.text);
      if (IsPointer(argument.arg) && !argument.arg.program.empty()) add(argument.arg.program.text);
    }
    for (const CuteArgument& argument : kernel_.arguments) {
      if (IsPointer(argument.arg)) add(SpanOf(argument, ElementBytes(argument)));
    }
    return atoms;
  }

 private:
  int64_t ElementBytes(const CuteArgument& argument) const {
    return SizeOf(DTypeOf(argument.arg, op_, variant_, point_.types));
  }

  const Op& op_;
  const Template& variant_;
  const Template::Point& point_;
  const CuteKernel& kernel_;
  Bindings bindings_;
};

Json TextsOf(const std::vector<Program>& programs) {
  Json texts = Json::array();
  for (const Program& program : programs) texts.push_back(program.text);
  return texts;
}

// A number; of a score modifier what it computes (score/tree.h), null where it is none.
Json PassedOf(const CuteSubject& subject, const std::string& name, int64_t value) {
  const auto& own = static_cast<const CuteVariant&>(*subject.variant.own);
  if (name != own.score_tunable) return value;
  return value == 0 ? Json() : ScoreTree(subject.op->score_mods[static_cast<size_t>(value) - 1]);
}

}  // namespace

// The exact GPU, or what all of a kind run: CuTe DSL knows both. Families are left to who asks.
bool CuteMakes(const Target& target) {
  if (target.kind != TargetKind::kCuda || target.major < 8) return false;
  return target.major < kFirstExactMajor ? target.feature == '\0' : target.feature == 'a';
}

Result<std::string> CuteRequest(const Op& op, const Template& variant, const Template::Point& point,
                                const Step& step, const Target& target) {
  const CuteKernel& kernel = CuteKernelOf(step);
  const CuteSubject subject = SubjectAt(op, variant, point, step);
  const RequestWriter writer(subject, kernel);
  Json arguments = Json::array(), types = Json::array(), floats = Json::array(),
       tunables = Json::object(), values = Json::array();
  for (const CuteArgument& argument : kernel.arguments) {
    KB_ASSIGN_OR_RETURN(Json one, writer.Argument(argument));
    arguments.push_back(std::move(one));
  }
  for (const DType type : subject.point.types) types.push_back(static_cast<int>(type));
  for (const auto& [name, value] : subject.taken) {
    tunables[name] = PassedOf(subject, name, value);
    values.push_back(value);
  }
  for (const Arg& number : CuteFloats(kernel)) floats.push_back(CuteFloatName(op, number));
  Json lets = Json::array(), regions = Json::array();
  for (const NamedProgram& let : subject.variant.lets) {
    if (!let.name.empty()) lets.push_back({let.name, let.program.text});
  }
  for (const Region& region : subject.variant.regions) {
    if (!region.name.empty()) regions.push_back({region.name, region.text});
  }
  return Json{{"function", step.kernel},
              {"target",
               {{"name", target.ToString()},
                {"major", target.major},
                {"minor", target.minor},
                {"shared", SharedBytes(target)}}},
              {"types", types},
              {"tunables", tunables},
              {"values", values},
              {"arguments", arguments},
              {"atoms", writer.Atoms()},
              {"spans", writer.Spans()},
              {"floats", floats},
              {"infer", kInferred},
              {"prove", kProved},
              {"drawers", CuteDraws::kDrawers},
              {"interface", op.interface_hash},
              {"require", TextsOf(op.require)},
              {"when", TextsOf(subject.variant.when)},
              {"step_when", step.when ? step.when->text : ""},
              {"lets", lets},
              {"regions", regions}}
      .dump();
}

}  // namespace kbundle::builder
