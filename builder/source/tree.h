// A source and every header of its own that it can read, as text that no longer depends on where
// the files lie.
//
// Each #include that names a file in the source's folder, in kbundle's kernel headers or in a -I
// folder is resolved here, and rewritten to a name that is unique in the tree. Compilers then get
// the tree itself, in memory or in an empty folder: what was hashed is what they read, a header
// that the scan did not see cannot be found, and no path of this machine reaches the code. The scan
// knows no #if, so it may hash a header that is not used; headers of CUDA and of the system stay
// outside.
#ifndef KBUNDLE_BUILDER_SOURCE_TREE_H_
#define KBUNDLE_BUILDER_SOURCE_TREE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/sha256.h"
#include "kbundle/status.h"

namespace kbundle::builder {

struct SourceFile {
  std::string
      name;  // "forward.cuh", "kbundle/host_kernel.h", "up/common/x.cuh": no path of this machine
  std::string text;     // with its #includes rewritten
  Sha256Digest digest;  // of text
  std::string path;     // where it lies, for messages; "" of one that is generated
};

struct SourceTree {
  std::vector<SourceFile> files;      // [0] is the source; headers in order of first appearance
  std::vector<std::string> external;  // other names included, sorted: "cuda_bf16.h", "stdint.h"
  // Errors, for compilers that do not list what they read: includes that the scan cannot follow.
  std::vector<std::string> unseen;
};

// The names in a text's #include directives, also of those that some #if leaves out.
std::vector<std::string> IncludedNames(std::string_view text);

// Remembers what it has read, for one build. Not thread-safe.
class SourceReader {
 public:
  // include_folders: searched after the including file's own folder, in order.
  // generated: names and texts of headers that are in no folder, and found before all that are.
  // kNotFound names the source and its folder.
  using Generated = std::map<std::string, std::string>;
  Result<std::shared_ptr<const SourceTree>> Read(const std::string& folder,
                                                 const std::string& source,
                                                 const std::vector<std::string>& include_folders,
                                                 const Generated& generated = {});
  // A Python file and what it imports from its own folder (source/python_tree.cc); names are
  // relative to that folder.
  Result<std::shared_ptr<const SourceTree>> ReadPython(const std::string& folder,
                                                       const std::string& source);

 private:
  std::map<std::string, std::string> texts_;  // by absolute path
  std::map<std::string, std::shared_ptr<const SourceTree>> trees_;
  friend class TreeScan;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SOURCE_TREE_H_
