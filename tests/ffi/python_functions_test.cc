// Promise: shortcuts take a Python that has all they call, and say by name what another lacks.
#include "python_functions.h"

#include <gtest/gtest.h>

#include <string>

namespace kbundle {
namespace {

PythonObject type_of_bool{}, truth{1, &type_of_bool}, something_else{};

// Every symbol is there, but for the one that is left out.
PythonLookup AllBut(const std::string& missing, PythonObject* yes) {
  return [missing, yes](const char* name) -> void* {
    static int anything = 0;
    if (name == missing) return nullptr;
    if (name == std::string("PyBool_Type")) return &type_of_bool;
    if (name == std::string("_Py_TrueStruct")) return yes;
    if (name == std::string("_Py_FalseStruct")) return &truth;
    return &anything;
  };
}

TEST(PythonFunctions, AreFoundWhereAllAreThere) {
  // Promise: a Python that has every symbol, and types where objects have them, is taken.
  const auto found = FillPythonFunctions(AllBut("", &truth));
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found.value().yes, &truth);
}

TEST(PythonFunctions, NameWhatIsMissing) {
  // Promise: whatever one of them is missing, the error says its name.
  for (const char* name : {"PyCFunction_NewEx", "PyObject_Vectorcall", "PyBool_Type",
                           "PyEval_RestoreThread", "PyExc_RuntimeError"}) {
    const auto found = FillPythonFunctions(AllBut(name, &truth));
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), StatusCode::kUnimplemented);
    EXPECT_NE(found.status().message().find(name), std::string::npos) << found.status().message();
  }
}

TEST(PythonFunctions, RefuseAPythonWhoseObjectsHaveTheirTypeElsewhere) {
  // Promise: where True is of no type that can be found, as without the global lock, none is used.
  const auto found = FillPythonFunctions(AllBut("", &something_else));
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.status().message().find("global lock"), std::string::npos);
}

}  // namespace
}  // namespace kbundle
