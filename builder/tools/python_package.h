// A compiler that is a package of Python, found and asked for without importing it.
#ifndef KBUNDLE_BUILDER_TOOLS_PYTHON_PACKAGE_H_
#define KBUNDLE_BUILDER_TOOLS_PYTHON_PACKAGE_H_

#include <string>
#include <vector>

#include "kbundle/sha256.h"
#include "kbundle/status.h"

namespace kbundle::builder {

class ToolDigests;

struct PythonPackage {
  std::string provider;  // whose variants need it
  std::string name;      // as pip has it
  std::string version;  // the one that kbundle was tried with: results depend on every detail of it
  // A program: its argument `probe` prints {"python": "3.11.2", "version": "" where it is missing,
  // "record": a digest over every file that was installed, "files": binaries to hash as they are}.
  std::string script;
};

struct FoundPackage {
  std::string python;          // the interpreter, as found
  std::string python_version;  // "3.11.2"; "" when it cannot be asked
  std::string version;         // "" when it has none
  std::string digest;          // as text
  std::vector<std::string> files;

  // Its interpreter is there and has the package in this version. kUnavailable says what to do.
  Status Need(const PythonPackage& wanted) const;
  // Of all that decides what it makes: what is installed, and the program that asks.
  Result<Sha256Digest> Identity(const PythonPackage& wanted, ToolDigests* digests) const;
  // Of another module that is installed beside it: its Python files.
  std::vector<std::string> FilesOfModule(const std::string& module) const;
  // "1.19.0 sha256:0123456789abcdef"
  std::string VersionAndDigest() const;
};

// asked: --python; else the first of Pythons() that has this version, or else the first of all.
// Never fails: what is missing is left empty. Takes some 60 ms for each Python.
FoundPackage FindPackage(const PythonPackage& wanted, const std::string& asked);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TOOLS_PYTHON_PACKAGE_H_
