// Which files belong to a bundle, as the file PATH.parts beside it says. A wheel for a GPU family
// brings one of a library's files, and each has such lines beside it:
//
//   site-packages/mylib/mylib.kb.parts         site-packages/mylib_sm90a/mylib.kb.parts
//     kbundle parts 1                            kbundle parts 1
//     package mylib                              package mylib
//     version 0.1.0                              version 0.1.0
//     depth 1                                    part sm90a
//     family sm90a sm_90a
//
// The base names its families, and how many folders below its packages' it lies; where a family's
// file is follows from names alone: the package's folder PACKAGE_FAMILY, and the base's file name.
// No line has a path, so none leads elsewhere. A part says whose it is, and names no others.
#ifndef KBUNDLE_LOADER_PARTS_BESIDE_H_
#define KBUNDLE_LOADER_PARTS_BESIDE_H_

#include <string>
#include <vector>

#include "kbundle/parts.h"

namespace kbundle {

struct Beside {
  std::vector<std::string> paths;  // of parts that are here
  std::vector<AbsentPart> absent;
};

// Of the bundle at the path: nothing, for one look at the disk, where there is no such file, or it
// is of a part. folders: where packages lie, besides the base's own folder, which goes first.
// kFailedPrecondition: a file that cannot be understood, or a part of another version or library;
// kNotFound: a part that has lost its bundle. Each names the file and what to install.
Result<Beside> LookBeside(const std::string& path, const std::vector<std::string>& folders);

// Whether what lies beside the bundle says that it is a part, which a base finds.
bool IsPart(const std::string& path);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PARTS_BESIDE_H_
