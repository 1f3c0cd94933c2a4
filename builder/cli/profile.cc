// A profile outlives the machine that it was taken on and other builds depend on it, so an existing
// file is replaced only where it begins as a profile does, or by --force.
#include "builder/cli/profile.h"

#include "builder/provider/cudnn/find.h"
#include "builder/provider/cudnn/profile.h"
#include "builder/support/files.h"
#include "builder/tools/toolchain.h"
#include "kbundle/json.h"

namespace kbundle::builder {

int ProfileCommand::Run(const Terminal& terminal) const {
  const Toolchain tools = Toolchain::Find();
  const std::string library = CudnnPaths(tools).front();
  if (const Status found = NeedCudnn(tools, library); !found.ok()) return terminal.Fail(found);
  const Result<std::string> profile = ReadDeviceProfile(library, device);
  if (!profile.ok()) {
    return terminal.Fail(Status(profile.status()).Annotate("a profile is taken from a live GPU"));
  }
  if (output == "-") {  // which is JSON as it is
    terminal.Out(*profile);
    return kExitOk;
  }
  Status written =
      force ? Status() : CheckOutput(output, std::string_view(*profile).substr(0, 8), "profile");
  if (written.ok()) written = PublishFile(output, *profile, Durability::kCrashOnly);
  if (!written.ok()) return terminal.Fail(written);
  if (terminal.json()) {
    JsonWriter json;
    terminal.Line(
        json.BeginObject().Key("ok").Bool(true).Key("output").Text(output).EndObject().text());
    return kExitOk;
  }
  terminal.Line("wrote " + output + "; profiles that ship are in builder/provider/cudnn/profiles");
  return kExitOk;
}

}  // namespace kbundle::builder
