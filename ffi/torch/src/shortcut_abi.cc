// kbundle_torch.h: what Python asks of shortcuts, checked, since it reads as C.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "handles.h"
#include "kbundle/kbundle_torch.h"
#include "shortcut.h"

namespace kbundle {
namespace {

constexpr char kCapsule[] = "kbundle.shortcut";

const ShortcutWorld* world = nullptr;  // once there, for ever

PythonObject* CallShortcut(PythonObject* self, PythonObject* const* arguments, intptr_t count,
                           PythonObject* names) {
  auto* shortcut = static_cast<Shortcut*>(world->python.CapsulePointer(self, kCapsule));
  return shortcut->Call(arguments, count, names);
}

void DestroyShortcut(PythonObject* capsule) {
  delete static_cast<Shortcut*>(world->python.CapsulePointer(capsule, kCapsule));
}

// note(site, number, environment or None, operands, results)
PythonObject* NoteCall(PythonObject*, PythonObject* const* arguments, intptr_t count,
                       PythonObject*) {
  const PythonFunctions& python = world->python;
  if (IsNoting() && count == 5) {
    try {
      ShortcutNote note;
      int overflow = 0;
      char* data = nullptr;
      intptr_t size = 0;
      note.number = python.Integer(arguments[1], &overflow);
      if (arguments[2] != python.none) {
        if (python.Bytes(arguments[2], &data, &size) != 0) return nullptr;
        note.environment = std::string(data, static_cast<size_t>(size));
      }
      note.site = OwnedObject::Of(python, arguments[0]);
      note.given = OwnedObject::Of(python, arguments[3]);
      note.results = OwnedObject::Of(python, arguments[4]);
      Note(std::move(note));
    } catch (...) {  // memory has run out: nothing is learned
    }
  }
  python.AddReference(python.none);
  return python.none;
}

PythonObject* RunKnownCall(PythonObject*, PythonObject* const* arguments, intptr_t count,
                           PythonObject*) {
  const PythonFunctions& python = world->python;
  try {
    if (count > 0) return RunSite(*world, arguments, count);
  } catch (...) {  // memory has run out, here or where the operator will find it
  }
  python.AddReference(python.none);
  return python.none;
}

PythonMethod shortcut_method{"shortcut", &CallShortcut, kFastcallWithKeywords, nullptr};
PythonMethod run_method{"run", &RunKnownCall, kFastcallWithKeywords, nullptr};
PythonMethod note_method{"note", &NoteCall, kFastcallWithKeywords, nullptr};

PythonObject* Object(void* address) { return static_cast<PythonObject*>(address); }

}  // namespace
}  // namespace kbundle

using kbundle::Guarded;
using kbundle::Object;
using kbundle::Status;
using kbundle::world;

extern "C" {

kb_error* kb_torch_shortcut_enable(const kb_torch_layout* layout) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(kbundle::RequirePointer(layout, "layout"));
    KB_ASSIGN_OR_RETURN(const kbundle::PythonFunctions* python, kbundle::LoadedPython());
    KB_ASSIGN_OR_RETURN(const kbundle::TorchFunctions* torch, kbundle::LoadedTorch());
    if (torch->Wrap == nullptr || torch->RequiresGrad == nullptr) {
      return kbundle::Unimplemented(
          "enabling shortcuts: this PyTorch has no THPVariable_Wrap or TensorImpl::requires_grad");
    }
    world = new kbundle::ShortcutWorld{
        *python,
        *torch,
        kbundle::Sites::Global(),
        {Object(layout->tensor_type), Object(layout->parameter_type), Object(layout->dtype_type),
         layout->tensor_offset, layout->keys_offset, layout->cpu_keys, layout->cuda_keys,
         Object(layout->differentiate)}};
    return Status();
  });
}

void* kb_torch_shortcut_make(void* function, void* const* states, size_t state_count) {
  const kbundle::PythonFunctions& python = world->python;
  try {
    std::vector<kbundle::OwnedObject> owned;
    for (size_t i = 0; i < state_count; ++i) {
      owned.push_back(kbundle::OwnedObject::Of(python, Object(states[i])));
    }
    auto shortcut = std::make_unique<kbundle::Shortcut>(
        *world, kbundle::OwnedObject::Of(python, Object(function)), std::move(owned));
    const kbundle::OwnedObject self(
        python, python.NewCapsule(shortcut.get(), kbundle::kCapsule, &kbundle::DestroyShortcut));
    if (self.get() == nullptr) return nullptr;
    shortcut.release();  // the capsule's
    return python.NewFunction(&kbundle::shortcut_method, self.get(), nullptr);
  } catch (...) {
    python.SetError(*python.runtime_error, "[kbundle:RESOURCE_EXHAUSTED] out of memory");
    return nullptr;
  }
}

void* kb_torch_shortcut_note(void) {
  return world->python.NewFunction(&kbundle::note_method, nullptr, nullptr);
}

void* kb_torch_shortcut_run(void) {
  return world->python.NewFunction(&kbundle::run_method, nullptr, nullptr);
}

}  // extern "C"
