// A lie about one number or text of an index under right hashes, and how it must be refused: by Open,
// and, opened op by op, when the op that it is about is first asked for.
#ifndef KBUNDLE_TESTS_SUPPORT_LIE_H_
#define KBUNDLE_TESTS_SUPPORT_LIE_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "loader/open/index.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle::testing {

struct Lie {
  const char* name;
  std::function<void(fb::IndexT&)> tell;
  const char* part;  // of the refusal
  StatusCode code = StatusCode::kDataLoss;
};

inline void ExpectRefusal(const Status& status, const Lie& lie) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), lie.code) << status.ToString();
  EXPECT_NE(status.message().find(lie.part), std::string::npos) << status.ToString();
}

// "index: op 'y': ..." of "opening bundle 'x': index: op 'y': ...".
inline std::string AboutIndex(const Status& status) {
  const size_t at = status.message().find("index: ");
  return at == std::string::npos ? status.message() : status.message().substr(at);
}

inline void ExpectLieRefused(BundleMaker maker, const Lie& lie) {
  TempDir dir;
  maker.change_index = lie.tell;
  WriteFile(dir / "liar.kb", maker.Bytes());
  const Status whole = Bundle::Open(dir / "liar.kb").status();
  ExpectRefusal(whole, lie);
  const auto bundle = Bundle::Open(dir / "liar.kb", Checks::kByOp);
  if (!bundle.ok()) return ExpectRefusal(bundle.status(), lie);
  EXPECT_EQ(AboutIndex((*bundle)->CheckIndex()), AboutIndex(whole));
  int refused = 0;
  for (const fb::Op* op : *IndexOf(**bundle).ops()) {
    const Status found = (*bundle)->FindOp(op->name()->string_view()).status();
    if (found.ok()) continue;
    ++refused;
    ExpectRefusal(found, lie);
    EXPECT_NE(found.message().find("op '" + op->name()->str() + "'"), std::string::npos);
  }
  EXPECT_GT(refused, 0);
}

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_LIE_H_
