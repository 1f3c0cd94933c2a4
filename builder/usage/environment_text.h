// What `kbundle --help` says of environment variables, and their names.
#ifndef KBUNDLE_BUILDER_USAGE_ENVIRONMENT_TEXT_H_
#define KBUNDLE_BUILDER_USAGE_ENVIRONMENT_TEXT_H_

#include <sstream>
#include <string>
#include <vector>

namespace kbundle::builder {

inline constexpr char kEnvironmentText[] =
    "Environment:\n"
    "  KBUNDLE_CACHE            folder of compiled objects, where --cache names none\n"
    "  KBUNDLE_SHARED_CACHE     such a folder behind it, of many machines; FOLDER:ro only reads "
    "it\n"
    "  KBUNDLE_CUDA_ROOT        CUDA toolkit to compile with\n"
    "  KBUNDLE_CXX              C++ compiler of host kernels [c++]\n"
    "  KBUNDLE_CXX_ARM          the same for armv8-a [aarch64-linux-gnu-g++]\n"
    "  KBUNDLE_CUDNN            libcudnn.so.9 to plan with; several: joined by ':'\n"
    "  KBUNDLE_PYTHON           Python with Triton, Warp or CuTe DSL; with NumPy for tune and "
    "test\n"
    "  KBUNDLE_COMPILE_TIMEOUT  seconds that a compile may take [600]\n"
    "  KBUNDLE_CPU_ISA          x86-64-v2 or -v3: take this CPU for less than it is\n"
    "  TMPDIR                   folder for what compilers leave, swept by the next run [/tmp]\n"
    "  NO_COLOR                 no colours";

// All of the text above, and those of others that decide which programs and GPUs are found.
inline std::vector<std::string> EnvironmentNames() {
  std::vector<std::string> names;
  std::istringstream lines(kEnvironmentText);
  std::string line, name;
  std::getline(lines, line);  // the heading
  while (std::getline(lines, line)) {
    if (std::istringstream(line) >> name && line[2] != ' ') names.push_back(name);
  }
  names.insert(names.end(), {"VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PATH"});
  return names;
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_USAGE_ENVIRONMENT_TEXT_H_
