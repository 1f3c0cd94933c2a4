// Nothing here may throw into Python's frames, nor PyTorch into ours: what goes wrong means that
// the function is called, as if there were no shortcut.
#include "shortcut.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kbundle {
namespace {

constexpr size_t kMostKnown = 8192;  // of a shortcut; then it forgets all
constexpr int kMostTries = 4;        // to understand what a call does
constexpr size_t kMostText = 64;
constexpr size_t kMostArguments = 64;

enum Tag : int64_t { kTensorTag = 1, kFloatTag, kIntegerTag, kTextTag, kConstantTag };

thread_local std::vector<ShortcutNote>* noting = nullptr;

int32_t PlaceOf(const PythonObject* object, PythonObject* const* objects, size_t count) {
  const auto found = std::find(objects, objects + count, object);
  return found == objects + count ? -1 : static_cast<int32_t>(found - objects);
}

}  // namespace

// What a call is given, as far as the function can see.
struct Shortcut::Given {
  EagerKey key;
  TorchDevice device;
  bool gradients = false, wanted = false;  // are recorded; are, of a tensor
  std::array<PythonObject*, kMostArguments> objects;
  std::array<TorchTensor, kMostArguments> tensors;  // null: it is none
  size_t count = 0;
};

void Note(ShortcutNote note) {
  if (noting != nullptr) noting->push_back(std::move(note));
}

bool IsNoting() { return noting != nullptr; }

bool Shortcut::ReadTensor(TorchTensor tensor, const PythonObject* argument, Given* out) {
  out->key.Add(kTensorTag);
  out->key.Add(PlaceOf(argument, out->objects.data(), out->count));
  out->key.Add(static_cast<int64_t>(KeysOf(world_, tensor)));
  if (!AddPlainTensor(world_, tensor, &out->device, &out->key)) return false;
  const bool wanted = out->gradients && world_.torch.WantsGradient(tensor);
  out->key.Add(wanted);
  out->wanted |= wanted;
  out->tensors[out->count] = tensor;
  return true;
}

bool Shortcut::ReadArgument(PythonObject* argument, Given* out) {
  const PythonFunctions& python = world_.python;
  const PythonObject* type = argument->type;
  if (const TorchTensor tensor = TensorOf(world_, argument); tensor != nullptr) {
    return ReadTensor(tensor, argument, out);
  }
  if (type == python.float_type) {
    const double number = python.Float(argument);
    int64_t bits = 0;
    std::memcpy(&bits, &number, sizeof(bits));
    out->key.Add(kFloatTag);
    out->key.Add(bits);
  } else if (type == python.int_type) {
    int overflow = 0;
    out->key.Add(kIntegerTag);
    out->key.Add(python.Integer(argument, &overflow));
    return overflow == 0;
  } else if (type == python.text_type) {
    intptr_t size = 0;
    const char* text = python.Text(argument, &size);
    if (text == nullptr) python.ClearError();
    if (text == nullptr || static_cast<size_t>(size) > kMostText) return false;
    out->key.Add(kTextTag);
    out->key.AddText({text, static_cast<size_t>(size)});
  } else if (argument == python.none || type == python.bool_type ||
             type == world_.layout.dtype_type) {  // each of them is there once, and for ever
    out->key.Add(kConstantTag);
    out->key.Add(reinterpret_cast<intptr_t>(argument));
  } else {
    return false;
  }
  return true;
}

bool Shortcut::Read(PythonObject* const* arguments, intptr_t count, PythonObject* names,
                    Given* out) {
  const PythonFunctions& python = world_.python;
  const intptr_t named = names == nullptr ? 0 : python.Size(names);
  if (static_cast<size_t>(count + named) > kMostArguments) return false;
  for (const OwnedObject& state : states_) {
    const OwnedObject said(python, python.Call(state.get(), nullptr, 0, nullptr));
    if (said.get() == nullptr) python.ClearError();
    if (said.get() == nullptr || said.get()->type == world_.layout.tensor_type ||
        !ReadArgument(said.get(), out)) {
      return false;
    }
  }
  out->gradients = world_.torch.IsGradEnabled();
  out->key.Add(count);
  out->key.Add(named);
  for (intptr_t i = 0; i < count + named; ++i) {
    if (i >= count) {
      intptr_t size = 0;
      const char* name = python.Text(python.Item(names, i - count), &size);
      if (name == nullptr) return python.ClearError(), false;
      out->key.AddText({name, static_cast<size_t>(size)});
    }
    out->tensors[out->count] = nullptr;
    if (!ReadArgument(arguments[i], out)) return false;
    out->objects[out->count++] = arguments[i];
  }
  return out->key.fits() && out->device.type >= 0;
}

PythonObject* Shortcut::Picked(const ShortcutRecipe& recipe, std::vector<OwnedObject> results) {
  const PythonFunctions& python = world_.python;
  if (recipe.single) return results[recipe.picks[0]].Give();
  OwnedObject tuple(python, python.NewTuple(static_cast<intptr_t>(recipe.picks.size())));
  if (tuple.get() == nullptr) return nullptr;
  for (size_t i = 0; i < recipe.picks.size(); ++i) {
    const int32_t pick = recipe.picks[i];
    PythonObject* item = pick < 0 ? python.none : results[pick].get();
    python.AddReference(item);
    if (python.SetItem(tuple.get(), static_cast<intptr_t>(i), item) != 0) return nullptr;
  }
  return tuple.Give();
}

std::optional<PythonObject*> Shortcut::Launch(const ShortcutRecipe& recipe, const Given& given) {
  std::array<TorchTensor, kMostArguments> operands;
  for (size_t i = 0; i < recipe.arguments.size(); ++i) {
    operands[i] = given.tensors[recipe.arguments[i]];
  }
  auto results = LaunchShortcut(world_, *recipe.plan, recipe.operand_count, *recipe.places,
                                given.device, {operands.data(), recipe.arguments.size()});
  if (!results.has_value()) return std::nullopt;
  return Picked(recipe, *std::move(results));
}

std::optional<PythonObject*> Shortcut::Make(const ShortcutRecipe& recipe,
                                            PythonObject* const* arguments, const Given& given) {
  if (!recipe.wanted) return Launch(recipe, given);
  const PythonFunctions& python = world_.python;
  std::array<PythonObject*, kMostArguments + 1> passed;
  passed[0] = recipe.site.get();
  for (size_t i = 0; i < recipe.arguments.size(); ++i) {
    passed[i + 1] = arguments[recipe.arguments[i]];
  }
  const OwnedObject made(python, python.Call(world_.layout.differentiate, passed.data(),
                                             recipe.arguments.size() + 1, nullptr));
  if (made.get() == nullptr || made.get()->type != python.tuple_type) return nullptr;
  std::vector<OwnedObject> results;
  for (intptr_t i = 0; i < python.Size(made.get()); ++i) {
    results.push_back(OwnedObject::Of(python, python.Item(made.get(), i)));
  }
  return Picked(recipe, std::move(results));
}

PythonObject* Shortcut::Long(PythonObject* const* arguments, intptr_t count, PythonObject* names) {
  return world_.python.Call(function_.get(), arguments, static_cast<size_t>(count), names);
}

std::shared_ptr<const ShortcutRecipe> Shortcut::Understand(const ShortcutNote& note,
                                                           PythonObject* made, const Given& given) {
  const PythonFunctions& python = world_.python;
  auto recipe = std::make_shared<ShortcutRecipe>();
  EagerKey key;
  TorchDevice device;
  for (intptr_t i = 0; i < python.Size(note.given.get()); ++i) {
    const int32_t place =
        PlaceOf(python.Item(note.given.get(), i), given.objects.data(), given.count);
    if (place < 0 || given.tensors[place] == nullptr ||
        !AddTensor(world_.torch, given.tensors[place], &device, &key)) {
      return nullptr;
    }
    recipe->arguments.push_back(place);
  }
  std::vector<PythonObject*> results;
  for (intptr_t i = 0; i < python.Size(note.results.get()); ++i) {
    results.push_back(python.Item(note.results.get(), i));
  }
  recipe->single = made->type != python.tuple_type;
  const intptr_t returned = recipe->single ? 1 : python.Size(made);
  for (intptr_t i = 0; i < returned; ++i) {
    PythonObject* one = recipe->single ? made : python.Item(made, i);
    const int32_t pick = one == python.none ? -1 : PlaceOf(one, results.data(), results.size());
    if (pick < 0 && (one != python.none || recipe->single)) return nullptr;
    recipe->picks.push_back(pick);
  }
  recipe->generation = kb_policy_generation();
  const auto found = world_.sites.Find(note.number, recipe->generation, key.bytes());
  if (!found.has_value() || found->plan == nullptr) return nullptr;
  for (const EagerResult& result : found->plan->results) {
    if (result.alias >= 0) return nullptr;
  }
  recipe->plan = found->plan;
  recipe->places = found->given;
  recipe->operand_count = found->operand_count;
  recipe->environment = note.environment;
  recipe->wanted = given.wanted;
  recipe->site = OwnedObject::Of(python, note.site.get());
  return recipe;
}

PythonObject* Shortcut::Learn(PythonObject* const* arguments, intptr_t count, PythonObject* names,
                              const Given& given) {
  std::vector<ShortcutNote> notes;
  noting = &notes;
  OwnedObject made(world_.python, Long(arguments, count, names));
  noting = nullptr;
  if (made.get() == nullptr || forgotten_ != world_.sites.forgotten()) return made.Give();
  if (known_.size() >= kMostKnown) known_.clear();
  Known& known = known_[std::string(given.key.bytes())];
  ++known.tries;
  if (notes.size() == 1) known.recipe = Understand(notes[0], made.get(), given);
  return made.Give();
}

PythonObject* Shortcut::Call(PythonObject* const* arguments, intptr_t count, PythonObject* names) {
  if (IsNoting()) return Long(arguments, count, names);
  try {
    if (const uint64_t now = world_.sites.forgotten(); forgotten_ != now) {
      decltype(known_) dropped;
      dropped.swap(known_);
      forgotten_ = now;
    }
    Given given;
    if (!Read(arguments, count, names, &given)) return Long(arguments, count, names);
    const auto found = known_.find(given.key.bytes());
    if (found != known_.end() && found->second.recipe != nullptr) {
      const auto recipe = found->second.recipe;
      if (recipe->generation == kb_policy_generation()) {
        if (!IsOfThisEnvironment(recipe->environment)) return Long(arguments, count, names);
        const auto made = Make(*recipe, arguments, given);
        return made.has_value() ? *made : Long(arguments, count, names);
      }
      const auto dropped = known_.extract(found);  // of another policy
      return Learn(arguments, count, names, given);
    }
    if (found == known_.end() || found->second.tries < kMostTries) {
      return Learn(arguments, count, names, given);
    }
  } catch (...) {  // memory has run out
    noting = nullptr;
  }
  return Long(arguments, count, names);
}

}  // namespace kbundle
