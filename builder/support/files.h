// Whole files: read, digest, publish. Errors name the path and what the system said.
#ifndef KBUNDLE_BUILDER_SUPPORT_FILES_H_
#define KBUNDLE_BUILDER_SUPPORT_FILES_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "builder/support/new_file.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// kNotFound when there is no such file; kResourceExhausted when it is longer than limit_bytes.
Result<std::string> ReadFile(const std::string& path, uint64_t limit_bytes = 1ull << 30);

// What lies in the folder, sorted. An error names it: kNotFound where there is none. (A range-for
// over the iterators of <filesystem> throws where a folder cannot be read on.)
Result<std::vector<std::filesystem::directory_entry>> ListFolder(
    const std::filesystem::path& folder);

// The same, and nothing where the folder cannot be read: for those who look in many places.
std::vector<std::filesystem::directory_entry> PeekIntoFolder(const std::filesystem::path& folder);

// Makes the folder and its parents. OK when it is there already.
Status MakeFolders(const std::string& path);

// Writes a neighbour of `path` and renames it into place, so that no reader ever sees half a file.
// After an error `path` is as it was before and the neighbour is gone. See support/new_file.h.
Status PublishFile(const std::string& path, std::string_view bytes, Durability durability);

// kFailedPrecondition unless a rename to `path` replaces a regular file or nothing: a device, pipe,
// socket or folder there stays what it is.
Status CheckReplaceable(const std::string& path);

// The same, and a file that is there must begin like one that this command writes, or be empty:
// kFailedPrecondition says that it is no `kind` ("bundle"), and how to replace it all the same.
Status CheckOutput(const std::string& path, std::string_view begins, std::string_view kind);

// "doing path: what the system says", and advice, by errno.
Status SystemError(std::string_view doing, const std::string& path, int error);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_FILES_H_
