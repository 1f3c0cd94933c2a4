// For tests of what may not be read.
#ifndef KBUNDLE_TESTS_SUPPORT_ORDINARY_USER_H_
#define KBUNDLE_TESTS_SUPPORT_ORDINARY_USER_H_

#include <gtest/gtest.h>
#include <unistd.h>

namespace kbundle::testing {

// While it lives modes of files count, for root too: root is nobody. Folders above must let nobody
// through.
class OrdinaryUser {
 public:
  OrdinaryUser() : root_(geteuid() == 0) { EXPECT_TRUE(!root_ || seteuid(65534) == 0); }
  ~OrdinaryUser() { EXPECT_TRUE(!root_ || seteuid(0) == 0); }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  const bool root_;
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_ORDINARY_USER_H_
