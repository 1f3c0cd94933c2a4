// Promise: a descriptor is closed exactly when its owner goes, and no owner closes what is not its.
#include "kbundle/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <type_traits>

namespace kbundle {
namespace {

static_assert(!std::is_copy_constructible_v<FileDescriptor>);
static_assert(!std::is_move_constructible_v<FileDescriptor>);

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptor, IsOpenAsLongAsItsOwnerLives) {
  int fd = -1;
  {
    const FileDescriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    fd = file.get();
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(FileDescriptor, OfAFailedOpenClosesNothingAndKeepsErrno) {
  int reason = 0;
  {
    const FileDescriptor none(open("/dev/null/none", O_RDONLY | O_CLOEXEC));
    EXPECT_FALSE(none.ok());
    EXPECT_EQ(none.get(), -1);
    reason = errno;
    errno = 0;
  }
  EXPECT_EQ(reason, ENOTDIR);
  EXPECT_EQ(errno, 0) << "its end called close(-1)";
}

}  // namespace
}  // namespace kbundle
