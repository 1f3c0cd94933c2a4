// A Python source and what it imports from its own folder. A module there is taken whole, a package
// with every *.py in it: which of them an import reaches is decided by code, and a superset does no
// harm. What is not in the tree does not exist for the compiler.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "builder/source/tree.h"
#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxPythonFiles = 4096;

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// "a" of "a.b as c"; "" for a relative import.
std::string TopName(std::string_view text) {
  text = Trimmed(text);
  return std::string(text.substr(0, text.find_first_of(". \t,;#(")));
}

// The first names of what the lines of a file import, docstrings included.
std::set<std::string> ImportedNames(std::string_view text) {
  std::set<std::string> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    std::string_view line = Trimmed(text.substr(0, end - (text[end - 1] == '\n')));
    text.remove_prefix(end);
    if (line.starts_with("from ")) {
      names.insert(TopName(line.substr(5)));
    } else if (line.starts_with("import ")) {
      line.remove_prefix(7);
      for (size_t comma = 0; comma != std::string_view::npos;) {
        comma = line.find(',');
        names.insert(TopName(line.substr(0, comma)));
        if (comma != std::string_view::npos) line.remove_prefix(comma + 1);
      }
    }
  }
  names.erase("");
  return names;
}

// Every *.py in it and in the folders within; of links to folders nothing.
Status AddPackage(const fs::path& folder, std::vector<fs::path>* files) {
  KB_ASSIGN_OR_RETURN(const std::vector<fs::directory_entry> entries, ListFolder(folder));
  for (const fs::directory_entry& entry : entries) {
    std::error_code ignored;
    if (entry.is_regular_file(ignored) && entry.path().extension() == ".py") {
      files->push_back(entry.path());
    } else if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) {
      KB_RETURN_IF_ERROR(AddPackage(entry.path(), files));
    }
  }
  return Status();
}

}  // namespace

Result<std::shared_ptr<const SourceTree>> SourceReader::ReadPython(const std::string& folder,
                                                                   const std::string& source) {
  const std::string key = folder + "\npython\n" + source;
  if (const auto found = trees_.find(key); found != trees_.end()) return found->second;
  const fs::path path = fs::absolute(fs::path(folder) / source).lexically_normal();
  const fs::path root = path.parent_path();
  auto tree = std::make_shared<SourceTree>();
  std::vector<fs::path> paths = {path};
  std::set<std::string> seen = {path.string()}, external;
  const auto add = [&](const fs::path& found) {
    if (seen.insert(found.string()).second) paths.push_back(found);
  };
  const auto add_import = [&](const std::string& name) {
    std::error_code error;
    std::vector<fs::path> files;
    if (fs::is_regular_file(root / (name + ".py"), error)) {
      files.push_back(root / (name + ".py"));
    } else if (fs::is_directory(root / name, error)) {
      KB_RETURN_IF_ERROR(AddPackage(root / name, &files));
    } else {
      external.insert(name);
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) add(file);
    return Status();
  };
  for (size_t i = 0; i < paths.size(); ++i) {
    if (i == kMaxPythonFiles) {
      return ResourceExhausted(fmt::format("{} imports over {} files", source, kMaxPythonFiles));
    }
    KB_ASSIGN_OR_RETURN(std::string text, ReadFile(paths[i].string(), 64 << 20));
    for (const std::string& name : ImportedNames(text)) {
      Status added = add_import(name);
      if (!added.ok()) return std::move(added).Annotate(fmt::format("{} imports {}", source, name));
    }
    const Sha256Digest digest = Sha256Of(text.data(), text.size());
    tree->files.push_back(
        {paths[i].lexically_relative(root).string(), std::move(text), digest, paths[i].string()});
  }
  tree->external.assign(external.begin(), external.end());
  return trees_[key] = std::move(tree);
}

}  // namespace kbundle::builder
