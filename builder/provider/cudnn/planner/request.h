// A request as the planner reads it: JSON, and sentences for what is wrong in it. Included by
// planner.cc alone, which compiles the frontend's headers once.
#ifndef KBUNDLE_BUILDER_PLANNER_REQUEST_H_
#define KBUNDLE_BUILDER_PLANNER_REQUEST_H_

#include <cudnn_frontend.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace kbundle::builder {

namespace fe = cudnn_frontend;
using Json = nlohmann::json;

// What makes one request fail: its text is the answer. Everything throws it and planner.cc catches.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A name that means nothing to the planner: whoever wrote the request misspelled it.
struct Mistake : Refusal {
  Mistake(const std::string& text, std::string wrong) : Refusal(text), name(std::move(wrong)) {}
  std::string name;
};

inline std::string Quoted(const std::string& text) { return "\"" + text + "\""; }

template <typename Names>
std::string Listed(const Names& names, const char* between = ", ") {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : between) + std::string(name);
  return list;
}

inline std::string Listed(const std::vector<int64_t>& sizes) {
  std::string list;
  for (int64_t size : sizes) list += (list.empty() ? "" : ", ") + std::to_string(size);
  return "[" + list + "]";
}

inline const std::map<std::string, fe::DataType_t>& Dtypes() {
  static const std::map<std::string, fe::DataType_t> dtypes = {
      {"bf16", fe::DataType_t::BFLOAT16}, {"f16", fe::DataType_t::HALF},
      {"f32", fe::DataType_t::FLOAT},     {"e4m3", fe::DataType_t::FP8_E4M3},
      {"e5m2", fe::DataType_t::FP8_E5M2}, {"i32", fe::DataType_t::INT32},
      {"i64", fe::DataType_t::INT64},
  };
  return dtypes;
}

// A JSON object of a request, which knows where it is and what it was asked for: what nobody asked
// for is a mistake of the caller's.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw Refusal(where_ + "must be a JSON object");
  }

  // nullptr: not there, or null.
  const Json* Find(const std::string& name) const {
    asked_.insert(name);
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  bool Has(const std::string& name) const { return Find(name) != nullptr; }
  std::string Text(const char* name, const char* otherwise) const {
    const Json* found = Find(name);
    if (found == nullptr) return otherwise;
    if (!found->is_string()) throw Refusal(where_ + Quoted(name) + " must be a text");
    return *found;
  }
  std::string Choice(const char* name, const char* otherwise,
                     std::initializer_list<const char*> allowed) const {
    const std::string found = Text(name, otherwise);
    for (const char* one : allowed) {
      if (found == one) return found;
    }
    throw Mistake(
        where_ + Quoted(name) + " is " + Quoted(found) + ", and must be " + Listed(allowed, " or "),
        name);
  }
  bool Flag(const char* name) const {
    const Json* found = Find(name);
    if (found != nullptr && !found->is_boolean()) {
      throw Refusal(where_ + Quoted(name) + " must be true or false");
    }
    return found != nullptr && found->get<bool>();
  }
  int64_t Integer(const std::string& name, int64_t least) const {
    const Json* found = Find(name);
    if (found == nullptr || !found->is_number_integer() || found->get<int64_t>() < least) {
      throw Refusal(where_ + Quoted(name) + " must be an integer of at least " +
                    std::to_string(least));
    }
    return *found;
  }
  double Number(const char* name) const {
    const Json* found = Find(name);
    if (found == nullptr || !found->is_number()) {
      throw Refusal(where_ + Quoted(name) + " must be a number");
    }
    return *found;
  }
  std::vector<int64_t> Sizes(const char* name, size_t rank) const {
    const Json* found = Find(name);
    if (found == nullptr || !found->is_array() || found->size() != rank) {
      throw Refusal(where_ + Quoted(name) + " must be " + std::to_string(rank) + " integers");
    }
    std::vector<int64_t> sizes;
    for (const Json& size : *found) {
      if (!size.is_number_integer() || size.get<int64_t>() <= 0) {
        throw Refusal(where_ + Quoted(name) + " must be positive integers");
      }
      sizes.push_back(size);
    }
    return sizes;
  }
  // The object `name`, which must be there; `means` says what it is.
  Fields Object(const std::string& name, const std::string& means) const {
    const Json* found = Find(name);
    if (found == nullptr || !found->is_object()) {
      throw Refusal(where_ + Quoted(name) + " must be " + means);
    }
    return Fields(*found, where_ + Quoted(name) + ": ");
  }

  // Once everything that has a meaning was asked for.
  void RefuseOthers(const char* what) const {
    for (const auto& [name, value] : json_.items()) {
      if (asked_.count(name) != 0) continue;
      throw Mistake(
          where_ + Quoted(name) + " is no " + what + " here; there are: " + Listed(asked_), name);
    }
  }

  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
  mutable std::set<std::string> asked_;
};

class Request : public Fields {
 public:
  explicit Request(const Json& json)
      : Fields(json, "planning " + NameIn(json) + ": "),
        node_(Text("node", "")),
        tensors_(Object("tensors", "an object of tensors by name")) {
    for (const char* name : {"number", "device", "sm_version", "engines"}) Find(name);
  }
  const std::string& node() const { return node_; }
  const Fields& tensors() const { return tensors_; }
  fe::DataType_t IoDtype(std::initializer_list<const char*> allowed) const {
    const std::string found = Text("io_dtype", "");
    for (const char* one : allowed) {
      if (found == one) return Dtypes().at(found);
    }
    // No mistake: an op may have problems of other dtypes, which another variant takes.
    throw Refusal(where() + "\"io_dtype\" is " + Quoted(found) + ", and must be " +
                  Listed(allowed, " or "));
  }

 private:
  static std::string NameIn(const Json& json) {
    if (!json.is_object()) throw Refusal("a request is a JSON object; see planner.cc");
    const auto found = json.find("node");
    return found != json.end() && found->is_string() ? found->get<std::string>() : "a graph";
  }

  const std::string node_;
  const Fields tensors_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PLANNER_REQUEST_H_
