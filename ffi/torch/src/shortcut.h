// Calls of Python functions that were made before: from the function to the launch in one step.
//
// A shortcut stands before a function that checks what it is given and then calls one op. What such
// a call did is remembered by what the function can see of its arguments: of tensors device, dtype,
// shape, which of them are the same one, and whether gradients are wanted; of others the value; and
// what Python says when it is asked for the states (torch's modes and settings). A call of which
// all that is as before is the same op, attributes and plan, of the same arguments: nothing of the
// function runs. Whatever a function makes of its arguments, a view or a copy, is no argument, so
// such a call is not remembered; nor is one whose results it changes.
//
// All of it happens on threads that hold the interpreter's lock, which protects it.
#ifndef KBUNDLE_FFI_SHORTCUT_H_
#define KBUNDLE_FFI_SHORTCUT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "python_functions.h"
#include "shortcut_world.h"
#include "sites.h"
#include "torch_functions.h"

namespace kbundle {

// What a call did, see Shortcut::Learn.
struct ShortcutRecipe {
  std::shared_ptr<const EagerPlan> plan;
  std::shared_ptr<const std::vector<int32_t>> places;  // of the operands that are given
  int32_t operand_count = 0;
  uint64_t generation = 0;
  std::optional<std::string> environment;  // $KBUNDLE_PATH, where that decided the bundle
  std::vector<int32_t> arguments;          // which of them the operands are
  bool wanted = false;                     // gradients are
  OwnedObject site;
  bool single = false;         // one result is returned, not a tuple
  std::vector<int32_t> picks;  // which results are returned; -1: None
};

// One call of an op while a function runs, said by Python.
struct ShortcutNote {
  OwnedObject site, given, results;  // tuples
  int64_t number = 0;
  std::optional<std::string> environment;
};

class Shortcut {
 public:
  Shortcut(const ShortcutWorld& world, OwnedObject function, std::vector<OwnedObject> states)
      : world_(world), function_(std::move(function)), states_(std::move(states)) {}

  // Arguments as of PythonKernel.
  PythonObject* Call(PythonObject* const* arguments, intptr_t count, PythonObject* names);

 private:
  struct Given;
  struct Known {
    std::shared_ptr<const ShortcutRecipe> recipe;
    int tries = 0;
  };

  bool Read(PythonObject* const* arguments, intptr_t count, PythonObject* names, Given* out);
  bool ReadArgument(PythonObject* argument, Given* out);
  bool ReadTensor(TorchTensor tensor, const PythonObject* argument, Given* out);
  // nullopt: another way is to be taken.
  std::optional<PythonObject*> Make(const ShortcutRecipe& recipe, PythonObject* const* arguments,
                                    const Given& given);
  std::optional<PythonObject*> Launch(const ShortcutRecipe& recipe, const Given& given);
  PythonObject* Long(PythonObject* const* arguments, intptr_t count, PythonObject* names);
  // The long way, which tells what it does.
  PythonObject* Learn(PythonObject* const* arguments, intptr_t count, PythonObject* names,
                      const Given& given);
  std::shared_ptr<const ShortcutRecipe> Understand(const ShortcutNote& note, PythonObject* made,
                                                   const Given& given);
  PythonObject* Picked(const ShortcutRecipe& recipe, std::vector<OwnedObject> results);

  const ShortcutWorld& world_;
  OwnedObject function_;
  std::vector<OwnedObject> states_;
  uint64_t forgotten_ = 0;
  std::unordered_map<std::string, Known, BytesHash, std::equal_to<>> known_;
};

// Of the function that this thread is learning, if it is: see Shortcut::Learn.
void Note(ShortcutNote note);
bool IsNoting();

}  // namespace kbundle

#endif  // KBUNDLE_FFI_SHORTCUT_H_
