// A library is a dozen files whose names and texts hold its own name: the files of library/ stand
// in the command as texts, and @NAME@ is filled in. They are written into a folder beside the place
// and renamed, so that a full disk or a kill leaves nothing that looks like a library.
#include "builder/starter/starter.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "builder/support/files.h"
#include "starter_ci.h"
#include "starter_gitignore.h"
#include "starter_host.h"
#include "starter_init.h"
#include "starter_jax.h"
#include "starter_kernels.h"
#include "starter_manifest.h"
#include "starter_pyproject.h"
#include "starter_pytorch.h"
#include "starter_readme.h"
#include "starter_reference.h"
#include "starter_test_jax.h"
#include "starter_test_pytorch.h"

namespace kbundle::builder {
namespace {

constexpr char kOpen[] = "@NAME@";

struct Text {
  const char* path;
  const char* text;
};
constexpr Text kTexts[] = {
    {"README.md", kStarterReadme},
    {"pyproject.toml", kStarterPyproject},
    {".gitignore", kStarterGitignore},
    {".github/workflows/build.yml", kStarterCi},
    {"kernels/@NAME@.toml", kStarterManifest},
    {"kernels/@NAME@.cu", kStarterKernels},
    {"kernels/@NAME@_host.cc", kStarterHost},
    {"kernels/reference.py", kStarterReference},
    {"src/@NAME@/__init__.py", kStarterInit},
    {"src/@NAME@/jax.py", kStarterJax},
    {"src/@NAME@/pytorch.py", kStarterPytorch},
    {"tests/test_jax.py", kStarterTestJax},
    {"tests/test_pytorch.py", kStarterTestPytorch},
};

// Python's words, and what a package that lies in a folder of sys.path would hide, or be hidden by:
// the modules of Python 3.11, and what the library's functions and tests import. Blanks between.
constexpr std::string_view kTaken =
    " abc aifc and antigravity argparse array as assert ast async asynchat asyncio asyncore"
    " atexit audioop await base64 bdb binascii bisect break builtins bz2 calendar cgi cgitb"
    " chunk class cmath cmd code codecs codeop collections colorsys compileall concurrent"
    " configparser contextlib contextvars continue copy copyreg crypt csv ctypes curses"
    " dataclasses datetime dbm decimal def del difflib dis distutils doctest elif else email"
    " encodings ensurepip enum errno except faulthandler fcntl filecmp fileinput finally"
    " fnmatch for fractions from ftplib functools gc genericpath getopt getpass gettext glob"
    " global graphlib grp gzip hashlib heapq hmac html http idlelib if imaplib imghdr imp"
    " import importlib in inspect io ipaddress is itertools jax jaxlib json kbundle keyword lambda"
    " lib2to3 linecache locale logging lzma mailbox mailcap marshal math mimetypes ml_dtypes mmap"
    " modulefinder msilib msvcrt multiprocessing netrc nis nntplib nonlocal not nt ntpath"
    " nturl2path numbers numpy opcode operator optparse or os ossaudiodev pass pathlib pdb"
    " pickle pickletools pipes pkgutil platform plistlib poplib posix posixpath pprint profile"
    " pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat pytest queue quopri raise"
    " random re readline reference reprlib resource return rlcompleter runpy sched secrets"
    " select selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket"
    " socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string"
    " stringprep struct subprocess sunau symtable sys sysconfig syslog tabnanny tarfile"
    " telnetlib tempfile termios test tests textwrap this threading time timeit tkinter token"
    " tokenize tomllib torch trace traceback tracemalloc try tty turtle turtledemo types"
    " typing unicodedata unittest urllib uu uuid venv warnings wave weakref webbrowser while"
    " winreg winsound with wsgiref xdrlib xml xmlrpc yield zipapp zipfile zipimport zlib"
    " zoneinfo ";

Status CheckLibraryName(const std::string& name) {
  bool fits = !name.empty() && name.size() <= 64 && name[0] >= 'a' && name[0] <= 'z';
  for (const char c : name) {
    fits = fits && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
  }
  if (!fits) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a library cannot be called '{}': its name is that of a Python "
                              "package and of its ops; take at most 64 small letters, digits and "
                              "_, a letter first",
                              name));
  }
  if (kTaken.find(" " + name + " ") != std::string_view::npos) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a library cannot be called '{0}': Python, or what its functions "
                              "import, has that name; take another, such as {0}_kernels",
                              name));
  }
  return Status();
}

std::string Filled(std::string text, const std::string& name) {
  for (size_t at = 0; (at = text.find(kOpen, at)) != std::string::npos; at += name.size()) {
    text.replace(at, sizeof kOpen - 1, name);
  }
  return text;
}

// A fresh folder beside `folder`, gone unless it is given that name.
class Draft {
 public:
  explicit Draft(const std::string& folder) : folder_(folder) {}
  ~Draft() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  Status Make() {
    const std::filesystem::path parent = folder_.parent_path();
    if (!parent.empty()) KB_RETURN_IF_ERROR(MakeFolders(parent));
    std::string name = (parent / ".kbundle-new-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      return SystemError("making a folder beside", folder_, errno);
    path_ = name;
    std::filesystem::permissions(path_, std::filesystem::perms(0755));
    return Status();
  }

  Status Add(const StarterFile& file) const {
    const std::filesystem::path path = path_ / file.path;
    KB_RETURN_IF_ERROR(MakeFolders(path.parent_path()));
    return PublishFile(path, file.text, Durability::kCrashOnly);
  }

  // A rename takes the place of nothing or of an empty folder, and of nothing else.
  Status Publish() {
    if (rename(path_.c_str(), folder_.c_str()) == 0) {
      path_.clear();
      return Status();
    }
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) {
      return SystemError("giving the new library its name", folder_, errno);
    }
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("{} is there already and is no empty folder: nothing was written; "
                              "take another name, or say with --into where else it should be",
                              folder_.string()));
  }

 private:
  const std::filesystem::path folder_;
  std::filesystem::path path_;
};

}  // namespace

Result<std::vector<StarterFile>> StarterFiles(const std::string& name) {
  KB_RETURN_IF_ERROR(CheckLibraryName(name));
  std::vector<StarterFile> files;
  for (const Text& text : kTexts)
    files.push_back({Filled(text.path, name), Filled(text.text, name)});
  return files;
}

Status WriteStarter(const std::string& folder, const std::vector<StarterFile>& files) {
  Draft draft(std::filesystem::path(folder).lexically_normal());
  KB_RETURN_IF_ERROR(draft.Make());
  for (const StarterFile& file : files) KB_RETURN_IF_ERROR(draft.Add(file));
  return draft.Publish();
}

}  // namespace kbundle::builder
