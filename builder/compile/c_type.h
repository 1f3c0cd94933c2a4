// Types of C++ parameters as compilers write them, "float const*" or "long int", read as far as a
// manifest can be compared with them. What cannot be read is `named`: any type of that size does.
#ifndef KBUNDLE_BUILDER_COMPILE_C_TYPE_H_
#define KBUNDLE_BUILDER_COMPILE_C_TYPE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/dtype.h"

namespace kbundle::builder {

struct CType {
  bool pointer = false;
  bool is_const = false;          // what it points at
  DType dtype = DType::kInvalid;  // of the value, or of what it points at; kInvalid: no such type
  bool named() const { return dtype == DType::kInvalid; }
};

CType ParseCType(std::string_view text);

// "float*, Pair<int, 2> const*, int" -> its three types. Commas in brackets do not count.
std::vector<std::string> SplitTypes(std::string_view list);

// Of a mangled name ("_Z6negateIiEvPT_PKS0_": "int*", "int const*"), with template arguments filled
// in. Nothing for a name that says no types, as of extern "C".
std::optional<std::vector<std::string>> TypesOfSymbol(const std::string& symbol);

// Whether memory of `tensor`s may be bound to a pointer to `element`: same type, integers of one
// size, single bytes (any memory is bytes), or 16-bit integers (the bits of a 16-bit number).
bool MayPointAt(DType element, DType tensor);
// Whether a parameter of type `parameter` takes a value that is passed as `passed`: kind, size and
// sign agree.
bool MayTake(DType parameter, DType passed);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_C_TYPE_H_
