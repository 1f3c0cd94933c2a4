// The Python that has CuTe DSL, and the program that runs in it.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_PYTHON_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_PYTHON_H_

#include "builder/compile/python_worker.h"
#include "builder/tools/python_package.h"

namespace kbundle::builder {

// The version that kbundle was tried with, and the child that compiles and records.
PythonPackage CutePackage();

// How it is started: the target's architecture is in the environment, since CuTe DSL looks there.
PythonProgram CuteProgram(const std::string& python, const std::string& target);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_PYTHON_H_
