// Python's functions are the program's own, or those of a library that it is linked with, so that
// they are found by name among all symbols of the process.
#include "python_functions.h"

#include <dlfcn.h>

#include <string>

namespace kbundle {
namespace {

constexpr char kFindingPython[] = "looking for Python's functions for shortcuts: ";

template <typename Address>
bool FindPython(const PythonLookup& lookup, const char* name, Address* out) {
  *out = reinterpret_cast<Address>(lookup(name));
  return *out != nullptr;
}

// The first name that is missing, or null.
const char* FillFunctions(const PythonLookup& lookup, PythonFunctions* out) {
#define KB_FIND(member, name) \
  if (!FindPython(lookup, name, &out->member)) return name
  KB_FIND(NewFunction, "PyCFunction_NewEx");
  KB_FIND(NewCapsule, "PyCapsule_New");
  KB_FIND(CapsulePointer, "PyCapsule_GetPointer");
  KB_FIND(Call, "PyObject_Vectorcall");
  KB_FIND(Float, "PyFloat_AsDouble");
  KB_FIND(Integer, "PyLong_AsLongLongAndOverflow");
  KB_FIND(Text, "PyUnicode_AsUTF8AndSize");
  KB_FIND(Bytes, "PyBytes_AsStringAndSize");
  KB_FIND(NewTuple, "PyTuple_New");
  KB_FIND(SetItem, "PyTuple_SetItem");
  KB_FIND(Item, "PyTuple_GetItem");
  KB_FIND(Size, "PyTuple_Size");
  KB_FIND(AddReference, "Py_IncRef");
  KB_FIND(Release, "Py_DecRef");
  KB_FIND(ClearError, "PyErr_Clear");
  KB_FIND(SetError, "PyErr_SetString");
  KB_FIND(GiveLock, "PyEval_SaveThread");
  KB_FIND(TakeLock, "PyEval_RestoreThread");
  KB_FIND(none, "_Py_NoneStruct");
  KB_FIND(yes, "_Py_TrueStruct");
  KB_FIND(no, "_Py_FalseStruct");
  KB_FIND(float_type, "PyFloat_Type");
  KB_FIND(int_type, "PyLong_Type");
  KB_FIND(text_type, "PyUnicode_Type");
  KB_FIND(tuple_type, "PyTuple_Type");
  KB_FIND(bool_type, "PyBool_Type");
  KB_FIND(runtime_error, "PyExc_RuntimeError");
#undef KB_FIND
  return nullptr;
}

}  // namespace

Result<PythonFunctions> FillPythonFunctions(const PythonLookup& lookup) {
  PythonFunctions functions{};
  if (const char* missing = FillFunctions(lookup, &functions); missing != nullptr) {
    return Unimplemented(std::string(kFindingPython) + missing +
                         " is missing; CPython 3.11 has it");
  }
  if (functions.yes->type != functions.bool_type || functions.no->type != functions.bool_type) {
    return Unimplemented(std::string(kFindingPython) +
                         "objects have their type elsewhere; take a CPython with its global lock");
  }
  return functions;
}

Result<const PythonFunctions*> LoadedPython() {
  static const Result<PythonFunctions> found =
      FillPythonFunctions([](const char* name) { return dlsym(RTLD_DEFAULT, name); });
  if (!found.ok()) return found.status();
  return &found.value();
}

}  // namespace kbundle
