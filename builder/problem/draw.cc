// Chance alone hardly ever meets several conditions at once, so height is the number of them that
// hold, and steps that keep it are taken too, or the climb would stick. Finds are kept in a pool
// that later draws start from. Sizes are changed last, one symbol at a time, so that they come
// apart wherever nothing ties them together.
#include "builder/problem/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kbundle::builder {
namespace {

constexpr int kClimbs = 60, kClimbSteps = 4000, kStarts = 8;
constexpr int kMoves = 24, kMostChanges = 6, kTries = 4;
constexpr size_t kPool = 64;
constexpr int64_t kMaxSize = LegalProblems::kMaxSize;

}  // namespace

ProblemDrawer::ProblemDrawer(const Op& op, const Template& variant, const Template::Point& point,
                             uint64_t seed)
    : op_(op), point_(point), random_(seed), legal_(op, variant, point), edges_(point.tunables) {
  const auto add = [this](const Program& program) {
    for (const Instruction& one : program.code) {
      if (one.opcode == Opcode::kConst && one.operand > 0) edges_.push_back(one.operand);
    }
  };
  for (const LegalProblems::Rule& rule : legal_.rules()) add(*rule.program);
  for (const NamedProgram& let : variant.lets) add(let.program);
  FindLengths();
}

// Uphill in the number of conditions that hold; never down.
bool ProblemDrawer::Climb() {
  const auto all = static_cast<int>(legal_.rules().size());
  Genes best = Chance(), genes;
  int height = legal_.Held(best, 0);
  for (int i = 0; i < kClimbSteps && height < all; ++i) {
    genes = best;
    for (uint64_t changes = 1 + Below(3); changes > 0; --changes) Change(&genes);
    FitTensors(&genes);
    if (const int reached = legal_.Held(genes, height); reached >= height) {
      std::swap(best, genes);
      height = reached;
    }
  }
  if (height < all) return false;
  found_.push_back(std::move(best));
  return true;
}

Result<DrawnProblem> ProblemDrawer::Next() {
  if (found_.empty()) {
    for (int i = 0; i < kClimbs && found_.size() < kStarts; ++i) Climb();
    if (found_.empty()) return NothingLegal();
  }
  // Away from where it was: what is not a size by a walk, sizes each anew.
  Genes genes = found_[Below(found_.size())], changed;
  for (int i = 0; i < kMoves; ++i) {
    changed = genes;
    for (uint64_t changes = 1 + Below(kMostChanges); changes > 0; --changes) Change(&changed);
    FitTensors(&changed);
    if (legal_.Take(changed)) std::swap(genes, changed);
  }
  for (size_t round = 0; round < 2 * genes.symbols.size(); ++round) {
    for (int i = 0; i < kTries; ++i) {
      changed = genes;
      Resize(Below(genes.symbols.size()), &changed.symbols);
      FitTensors(&changed);
      if (!legal_.Take(changed)) continue;
      std::swap(genes, changed);
      break;
    }
  }
  changed = genes;
  ChangeFloats(&changed);
  if (legal_.Take(changed)) std::swap(genes, changed);
  DrawnProblem drawn = Bind(genes);
  if (found_.size() < kPool) {
    found_.push_back(std::move(genes));
  } else {
    found_[Below(kPool)] = std::move(genes);
  }
  return drawn;
}

// Another size for one symbol, for it and all of its size, or for it and those that are multiples.
void ProblemDrawer::Resize(size_t number, std::vector<int64_t>* sizes) {
  const int64_t before = (*sizes)[number], after = ChanceSize();
  const uint64_t kind = Below(3);
  for (size_t i = 0; i < sizes->size(); ++i) {
    int64_t& size = (*sizes)[i];
    const bool multiple = kind == 2 && size % before == 0 && size / before <= kMaxSize / after;
    if (i == number || (kind == 1 && size == before)) {
      size = after;
    } else if (multiple && Below(2) == 0) {
      size = size / before * after;
    }
  }
}

// Small, a power of two, a multiple of 8, beside one of 64, anything at all.
int64_t ProblemDrawer::ChanceSize() {
  const uint64_t kind = Below(24);
  if (kind >= 20 && !edges_.empty()) {
    const int64_t edge = edges_[Below(edges_.size())];
    return std::clamp<int64_t>(edge + static_cast<int64_t>(Below(5)) / 2 - 1, 1, kMaxSize);
  }
  if (kind < 5) return 1 + static_cast<int64_t>(Below(16));
  if (kind < 9) return int64_t{1} << Below(15);
  if (kind < 12) return 8 * (1 + static_cast<int64_t>(Below(512)));
  if (kind < 14) {
    return std::max<int64_t>(
        1, 64 * (1 + static_cast<int64_t>(Below(64))) + static_cast<int64_t>(Below(3)) - 1);
  }
  const uint64_t bits = kind < 19 ? 1 + Below(17) : 1 + Below(31);
  return 1 + static_cast<int64_t>(random_() & ((uint64_t{1} << bits) - 1));
}

double ProblemDrawer::ChanceFloat() {
  constexpr double kUnits = 1 << 20;
  const double value = std::ldexp(static_cast<double>(1 + Below(uint64_t{1} << 20)) / kUnits,
                                  static_cast<int>(Below(13)) - 8);
  return Below(4) == 0 ? -value : value;
}

ProblemAttribute ProblemDrawer::ChanceOf(int number) {
  const Attribute& attribute = op_.attributes[static_cast<size_t>(number)];
  ProblemAttribute chosen;
  chosen.attribute = number;
  switch (attribute.type) {
    case AttributeType::kBool:
      chosen.integers = {static_cast<int64_t>(Below(2))};
      break;
    case AttributeType::kInt:
      chosen.integers = {Below(3) == 0 ? static_cast<int64_t>(Below(4)) - 1 : ChanceSize()};
      break;
    case AttributeType::kFloat:
      chosen.floats = {Below(4) == 0 ? 0.0 : ChanceFloat()};
      break;
    case AttributeType::kEnum:
      chosen.integers = {static_cast<int64_t>(Below(attribute.choices.size()))};
      break;
    case AttributeType::kDType:
      for (size_t i = 0; i < op_.types.size(); ++i) {
        if (op_.types[i].attribute == number) {
          chosen.integers = {static_cast<int64_t>(point_.types[i])};
        }
      }
      break;
    case AttributeType::kIntArray:
      for (uint64_t i = Below(attribute.max_len + 1); i > 0; --i) {
        chosen.integers.push_back(ChanceSize());
      }
      break;
    case AttributeType::kFloatArray:
      for (uint64_t i = Below(attribute.max_len + 1); i > 0; --i) {
        chosen.floats.push_back(ChanceFloat());
      }
      break;
  }
  return chosen;
}

Genes ProblemDrawer::Chance() {
  Genes genes;
  for (size_t i = 0; i < op_.symbols.size(); ++i) genes.symbols.push_back(ChanceSize());
  for (size_t i = 0; i < op_.attributes.size(); ++i) {
    const Attribute& attribute = op_.attributes[i];
    if (!attribute.has_default || Below(2) == 0) {
      genes.attributes.push_back(ChanceOf(static_cast<int>(i)));
    }
  }
  for (const Tensor& operand : op_.operands) {
    genes.present.push_back(!operand.optional || Below(2) == 0);
  }
  FitTensors(&genes);
  return genes;
}

void ProblemDrawer::ChangeSymbols(Genes* genes) {
  std::vector<int64_t>& sizes = genes->symbols;
  int64_t& one = sizes[Below(sizes.size())];
  int64_t& other = sizes[Below(sizes.size())];
  switch (Below(6)) {
    case 0:
      one = other;
      break;
    case 1:
      std::swap(one, other);
      break;
    case 2:
      if (other <= kMaxSize / 16) one = other * (1 + static_cast<int64_t>(Below(16)));
      break;
    case 3: {  // all that are equal stay so
      const int64_t before = one, after = ChanceSize();
      std::replace(sizes.begin(), sizes.end(), before, after);
      break;
    }
    default:
      one = ChanceSize();
  }
}

// Sizes rarely depend on them, so that each problem may have its own.
void ProblemDrawer::ChangeFloats(Genes* genes) {
  for (size_t i = 0; i < op_.attributes.size(); ++i) {
    const auto number = static_cast<int>(i);
    if (op_.attributes[i].type == AttributeType::kFloat && Below(2) == 0)
      Give(ChanceOf(number), genes);
  }
  for (ProblemAttribute& given : genes->attributes) {
    const AttributeType type = op_.attributes[static_cast<size_t>(given.attribute)].type;
    if (type != AttributeType::kFloatArray) continue;
    for (double& element : given.floats) element = ChanceFloat();
  }
}

void ProblemDrawer::Give(const ProblemAttribute& chosen, Genes* genes) {
  std::erase_if(genes->attributes, [&](const ProblemAttribute& before) {
    return before.attribute == chosen.attribute;
  });
  genes->attributes.push_back(chosen);
}

void ProblemDrawer::Change(Genes* genes) {
  if (!op_.score_mods.empty() && Below(16) == 0) return ChangeModifier(genes);
  const uint64_t kind = Below(10);
  if (kind < 6 && !genes->symbols.empty()) return ChangeSymbols(genes);
  if (kind < 9 && !op_.attributes.empty()) {
    return Give(ChanceOf(static_cast<int>(Below(op_.attributes.size()))), genes);
  }
  const size_t number = Below(op_.operands.size());
  if (op_.operands[number].optional) genes->present[number] = !genes->present[number];
}

DrawnProblem ProblemDrawer::Bind(const Genes& genes) {
  DrawnProblem drawn;
  drawn.bindings = legal_.BindLeast(genes);
  for (const Attribute& attribute : op_.attributes) drawn.floats.push_back(attribute.floats);
  for (const ProblemAttribute& given : genes.attributes) {
    drawn.floats[static_cast<size_t>(given.attribute)] = given.floats;
  }
  drawn.alignment = drawn.bindings.alignment;
  drawn.text = Describe(genes);
  return drawn;
}

std::string ProblemDrawer::Describe(const Genes& genes) const {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  };
  for (size_t i = 0; i < op_.symbols.size(); ++i) {
    add(op_.symbols[i], std::to_string(genes.symbols[i]));
  }
  for (const ProblemAttribute& given : genes.attributes) {
    const Attribute& attribute = op_.attributes[static_cast<size_t>(given.attribute)];
    if (attribute.type == AttributeType::kEnum) {
      add(attribute.name, "'" + attribute.choices[static_cast<size_t>(given.integers[0])] + "'");
    } else if (given.integers.size() == 1) {
      add(attribute.name, std::to_string(given.integers[0]));
    } else if (given.floats.size() == 1) {
      add(attribute.name, fmt::format("{}", given.floats[0]));
    }
  }
  std::string absent;
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    if (genes.present[i]) continue;
    absent += (absent.empty() ? "; absent: " : ", ") + op_.operands[i].name;
  }
  return text + absent;
}

Status ProblemDrawer::NothingLegal() const {
  const auto& rules = legal_.rules();
  const auto most = std::max_element(rules.begin(), rules.end(), [](const auto& a, const auto& b) {
    return a.refused < b.refused;
  });
  std::string why;
  if (most != rules.end() && most->refused > 0) {
    why = fmt::format("; '{}' of {} refuses most", most->program->text,
                      most->required ? "`require`" : "`when`");
  }
  return InvalidArgument(
      fmt::format("no problem was found that the variant takes, in {} searches of {} steps{}",
                  kClimbs, kClimbSteps, why));
}

}  // namespace kbundle::builder
