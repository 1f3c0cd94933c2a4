// What a variant's fingerprint is a hash of: its parts, each after its length.
#ifndef KBUNDLE_BUILDER_COMPILE_FINGERPRINT_TEXT_H_
#define KBUNDLE_BUILDER_COMPILE_FINGERPRINT_TEXT_H_

#include <string>
#include <vector>

#include "builder/model/step.h"

namespace kbundle::builder {

class FingerprintText {
 public:
  void Add(const std::string& part) { bytes_ += std::to_string(part.size()) + ":" + part; }
  void Add(const std::vector<Program>& programs) {
    for (const Program& program : programs) Add(program.text);
    bytes_ += ';';
  }
  void Add(const Arg& arg) {
    Add(std::to_string(static_cast<int>(arg.kind)) + "," + std::to_string(arg.index) + "," +
        std::to_string(static_cast<int>(arg.ctype)) + "," + std::to_string(arg.count));
    Add(arg.text);
    Add(arg.program.text);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_FINGERPRINT_TEXT_H_
