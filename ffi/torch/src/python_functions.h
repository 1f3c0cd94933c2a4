// CPython's C interface as one table of functions, found in the process; a seam for tests.
//
// Declared here, since the library is built for every Python and none: all of it is of the stable
// interface, but where an object has its type, which is tried before anything relies on it.
#ifndef KBUNDLE_FFI_PYTHON_FUNCTIONS_H_
#define KBUNDLE_FFI_PYTHON_FUNCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "kbundle/status.h"

namespace kbundle {

struct PythonObject {
  intptr_t references;
  PythonObject* type;
};
// Of a call: arguments by place, then those by name, whose names are a tuple or null.
using PythonKernel = PythonObject* (*)(PythonObject* self, PythonObject* const* arguments,
                                       intptr_t count, PythonObject* names);
struct PythonMethod {
  const char* name;
  PythonKernel kernel;
  int flags;
  const char* documentation;
};
constexpr int kFastcallWithKeywords = 0x80 | 0x2;

// Functions are called by a thread that holds the interpreter's lock, but for Restore. Those that
// return an object return a reference, or null with an exception set.
struct PythonFunctions {
  PythonObject* (*NewFunction)(PythonMethod* method, PythonObject* self, PythonObject* module);
  PythonObject* (*NewCapsule)(void* pointer, const char* name, void (*destroy)(PythonObject*));
  void* (*CapsulePointer)(PythonObject* capsule, const char* name);
  // names: as of PythonKernel; those arguments are not counted.
  PythonObject* (*Call)(PythonObject* function, PythonObject* const* arguments, size_t count,
                        PythonObject* names);
  double (*Float)(PythonObject* number);
  long long (*Integer)(PythonObject* number, int* overflow);
  const char* (*Text)(PythonObject* text, intptr_t* size);         // borrowed; null: it has none
  int (*Bytes)(PythonObject* bytes, char** data, intptr_t* size);  // borrowed; 0 is success
  PythonObject* (*NewTuple)(intptr_t size);
  int (*SetItem)(PythonObject* tuple, intptr_t index, PythonObject* item);  // takes the item
  PythonObject* (*Item)(PythonObject* tuple, intptr_t index);               // borrowed
  intptr_t (*Size)(PythonObject* tuple);
  void (*AddReference)(PythonObject* object);
  void (*Release)(PythonObject* object);
  void (*ClearError)();
  void (*SetError)(PythonObject* type, const char* text);
  void* (*GiveLock)();
  void (*TakeLock)(void* state);

  PythonObject *none, *yes, *no;
  PythonObject *float_type, *int_type, *text_type, *tuple_type, *bool_type;
  PythonObject** runtime_error;
};

// Address of a symbol, or null.
using PythonLookup = std::function<void*(const char* name)>;

// kUnimplemented names what is missing.
Result<PythonFunctions> FillPythonFunctions(const PythonLookup& lookup);

// Those of the process's Python. Made once; the answer stays.
Result<const PythonFunctions*> LoadedPython();

// A reference of ours to an object, or nothing; given back by a thread that holds the lock.
class OwnedObject {
 public:
  OwnedObject() = default;
  OwnedObject(const PythonFunctions& python, PythonObject* object)
      : python_(&python), object_(object) {}
  OwnedObject(OwnedObject&& other) noexcept
      : python_(other.python_), object_(std::exchange(other.object_, nullptr)) {}
  OwnedObject& operator=(OwnedObject&& other) noexcept {
    std::swap(python_, other.python_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~OwnedObject() {
    if (object_ != nullptr) python_->Release(object_);
  }
  static OwnedObject Of(const PythonFunctions& python, PythonObject* borrowed) {
    python.AddReference(borrowed);
    return {python, borrowed};
  }
  PythonObject* get() const { return object_; }
  PythonObject* Give() { return std::exchange(object_, nullptr); }

 private:
  const PythonFunctions* python_ = nullptr;
  PythonObject* object_ = nullptr;
};

}  // namespace kbundle

#endif  // KBUNDLE_FFI_PYTHON_FUNCTIONS_H_
