# A toolchain whose code runs on any Linux with glibc 2.28 (2018) or later: zig's clang, which has every glibc's interface in
# it, with libc++ linked in. scripts/wheel builds with it; scripts/setup --wheel installs it.

set(KB_ZIG "" CACHE FILEPATH "zig, of the wheel ziglang")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES KB_ZIG)
if(NOT EXISTS "${KB_ZIG}")
  message(FATAL_ERROR "looking for zig: KB_ZIG is \"${KB_ZIG}\", which is no file; run scripts/setup --wheel, and see scripts/wheel")
endif()

# Drivers of one word each, as launchers and CMake want a compiler to be.
foreach(language cc c++)
  file(CONFIGURE OUTPUT "zig-${language}" CONTENT "#!/bin/sh\nexec '@KB_ZIG@' @language@ -target x86_64-linux-gnu.2.28 \"$@\"\n" @ONLY)
  file(CHMOD "${CMAKE_BINARY_DIR}/zig-${language}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(CMAKE_C_COMPILER "${CMAKE_BINARY_DIR}/zig-cc")
set(CMAKE_CXX_COMPILER "${CMAKE_BINARY_DIR}/zig-c++")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s")
# The environment lies in the sources or beside them: its own name goes last, and so first.
set(CMAKE_CXX_FLAGS_INIT
    "-ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=build -ffile-prefix-map=${KB_VENV}=venv")
set(CMAKE_C_FLAGS_INIT "${CMAKE_CXX_FLAGS_INIT}")

# Archives of this machine, by their full names; what they take of glibc must be as old, which auditwheel is asked.
list(APPEND CMAKE_LIBRARY_PATH /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib)

# Of this machine's headers only those of the libraries that are linked in: all of /usr/include would bring its glibc along.
set(kb_headers "${CMAKE_BINARY_DIR}/headers")
file(MAKE_DIRECTORY "${kb_headers}")
foreach(name fmt zstd.h zstd_errors.h xxhash.h xxh3.h sodium sodium.h toml++ nlohmann CLI)
  if(EXISTS "/usr/include/${name}")
    file(CREATE_LINK "/usr/include/${name}" "${kb_headers}/${name}" SYMBOLIC)
  endif()
endforeach()
foreach(library FMT ZSTD XXHASH SODIUM TOMLPP NLOHMANN CLI11)
  set(KB_${library}_INCLUDE_DIR "${kb_headers}" CACHE PATH "")
endforeach()
# cuDNN's too, where a package put them there; elsewhere they have a folder of their own.
file(GLOB kb_cudnn_headers /usr/include/cudnn*.h /usr/include/x86_64-linux-gnu/cudnn*.h)
foreach(header IN LISTS kb_cudnn_headers)
  cmake_path(GET header FILENAME name)
  file(CREATE_LINK "${header}" "${kb_headers}/${name}" SYMBOLIC)
endforeach()
if(kb_cudnn_headers)
  set(KB_CUDNN_INCLUDE_DIR "${kb_headers}" CACHE PATH "")
endif()
