// Who wants to hear what the loader decides: each plan that is made, and why it is the one. Nobody
// unless asked for; the loader itself prints nothing.
#ifndef KBUNDLE_LOG_H_
#define KBUNDLE_LOG_H_

#include <string>

namespace kbundle {

enum class Severity {
  kInfo = 0,     // a plan was made, as the bundle means it
  kWarning = 1,  // a better variant was passed over, or code for any GPU was taken
};

// Called on the thread that made the plan, by several threads at once. It must not throw, and must
// not call SetLog.
using LogFunction = void (*)(void* state, Severity severity, const char* message);

// Process-wide; null: nobody. On return no call of the function before is still running.
void SetLog(LogFunction function, void* state);

// True where somebody listens: only then a message need be made.
bool IsLogged();
void Log(Severity severity, const std::string& message);

}  // namespace kbundle

#endif  // KBUNDLE_LOG_H_
