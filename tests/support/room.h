// How far a measurement may be from what the loader promises before a test fails: the machine is
// busy, and sanitizers slow everything down.
#ifndef KBUNDLE_TESTS_SUPPORT_ROOM_H_
#define KBUNDLE_TESTS_SUPPORT_ROOM_H_

namespace kbundle::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kRoom = 100;
#else
inline constexpr double kRoom = 5;
#endif

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_ROOM_H_
