// One line of JSON asks, one answers; sources and code are in base64, since they need not be UTF-8.
#include "builder/provider/cuda/nvrtc_worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "builder/support/base64.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
constexpr int kRequests = 3, kAnswers = 4;

Json Encoded(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(Base64(text));
  return list;
}

std::string Decoded(const Json& text) { return FromBase64(text.get<std::string>()).value_or(""); }

std::vector<std::string> DecodedAll(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& text : list) texts.push_back(Decoded(text));
  return texts;
}

std::string Request(const NvrtcInput& input) {
  std::vector<std::string> names, texts;
  for (const auto& [name, text] : input.headers) {
    names.push_back(name);
    texts.push_back(text);
  }
  return Json{{"source", Base64(input.source)},
              {"names", Encoded(names)},
              {"texts", Encoded(texts)},
              {"options", Encoded(input.options)},
              {"expressions", Encoded(input.name_expressions)},
              {"ptx", input.ptx}}
      .dump();
}

NvrtcInput InputOf(const Json& request) {
  NvrtcInput input;
  input.source = Decoded(request.at("source"));
  const std::vector<std::string> names = DecodedAll(request.at("names"));
  const std::vector<std::string> texts = DecodedAll(request.at("texts"));
  for (size_t i = 0; i < names.size(); ++i) input.headers.emplace_back(names[i], texts.at(i));
  input.options = DecodedAll(request.at("options"));
  input.name_expressions = DecodedAll(request.at("expressions"));
  input.ptx = request.at("ptx");
  return input;
}

std::string Answer(const Result<NvrtcOutput>& output) {
  if (!output.ok()) {
    return Json{{"code", static_cast<int>(output.status().code())},
                {"message", Base64(output.status().message())}}
        .dump();
  }
  return Json{{"ok", output->ok},
              {"object", Base64(output->code)},
              {"names", Encoded(output->lowered_names)},
              {"log", Base64(output->log)}}
      .dump();
}

Result<NvrtcOutput> OutputOf(const std::string& line) {
  const Json answer = Json::parse(line, nullptr, false);
  if (!answer.is_object()) return Internal("the child that runs NVRTC answered what is no answer");
  if (answer.contains("code")) {
    return Status(static_cast<StatusCode>(answer["code"].get<int>()), Decoded(answer["message"]));
  }
  NvrtcOutput output;
  output.ok = answer.at("ok");
  output.code = Decoded(answer.at("object"));
  output.lowered_names = DecodedAll(answer.at("names"));
  output.log = Decoded(answer.at("log"));
  return output;
}

// The command: this program, or the one beside it where the builder is inside another.
std::string CommandPath() {
  const std::filesystem::path own = OwnExecutable();
  std::error_code error;
  for (const char* other : {"kbundle", "../kbundle"}) {
    const std::filesystem::path path = own.parent_path() / other;
    if (std::filesystem::is_regular_file(path, error)) return path.string();
  }
  return "";
}

}  // namespace

Result<std::shared_ptr<NvrtcWorkers>> NvrtcWorkers::Open(const std::string& library_path) {
  KB_ASSIGN_OR_RETURN(const auto library, Nvrtc::Open(library_path));
  return std::shared_ptr<NvrtcWorkers>(new NvrtcWorkers(library_path, library->version()));
}

Result<std::unique_ptr<WorkerProcess>> NvrtcWorkers::Start() const {
  const std::string program = CommandPath();
  if (program.empty()) {
    return Unavailable("NVRTC runs in children of the command kbundle, which is not beside " +
                       OwnExecutable() + "; build the target kbundle");
  }
  KB_ASSIGN_OR_RETURN(auto child, WorkerProcess::Start({program, "nvrtc-worker", library_path_}));
  child->set_limits({0, 64 << 20});
  return child;
}

std::unique_ptr<WorkerProcess> NvrtcWorkers::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Idle& idle : idle_) {
    if (idle.thread != std::this_thread::get_id()) continue;
    std::unique_ptr<WorkerProcess> child = std::move(idle.child);
    idle = std::move(idle_.back());
    idle_.pop_back();
    return child;
  }
  return nullptr;
}

Result<NvrtcOutput> NvrtcWorkers::Compile(const NvrtcInput& input, std::chrono::seconds limit) {
  const std::string request = Request(input);
  std::unique_ptr<WorkerProcess> child = Take();
  bool fresh = child == nullptr;
  while (true) {
    if (child == nullptr) {
      KB_ASSIGN_OR_RETURN(child, Start());
      fresh = true;
    }
    WorkerProcess::Answer answer{WorkerProcess::Event::kEnded, ""};
    if (child->Send(request)) answer = child->Read(WorkerProcess::Clock::now() + limit);
    if (answer.event == WorkerProcess::Event::kLine) {
      const std::lock_guard<std::mutex> lock(mutex_);
      idle_.push_back({std::this_thread::get_id(), std::move(child)});
      return OutputOf(answer.line);
    }
    if (answer.event == WorkerProcess::Event::kTimeout) {
      return DeadlineExceeded(fmt::format(
          "NVRTC was stopped after {} s; a larger limit: KBUNDLE_COMPILE_TIMEOUT (seconds)",
          limit.count()));
    }
    if (fresh) {
      return Internal(fmt::format("the child that runs NVRTC ended with {}\n{}",
                                  child->Kill().ToString(), child->Tail()));
    }
    child.reset();  // an idle one that died meanwhile
  }
}

// The library is opened behind the first request: before, nobody would take it out of the pipe.
int RunNvrtcWorker(const std::string& library_path) {
  std::shared_ptr<const Nvrtc> library;
  const std::unique_ptr<FILE, int (*)(FILE*)> in(fdopen(kRequests, "r"), &std::fclose);
  const std::unique_ptr<FILE, int (*)(FILE*)> out(fdopen(kAnswers, "w"), &std::fclose);
  if (in == nullptr || out == nullptr) return 1;
  char* line = nullptr;
  size_t room = 0;
  for (ssize_t size; (size = getline(&line, &room, in.get())) > 0;) {
    const Json request = Json::parse(std::string_view(line, size), nullptr, false);
    if (!request.is_object()) return 1;
    if (library == nullptr) {
      auto opened = Nvrtc::Open(library_path);
      if (!opened.ok()) {
        std::fprintf(stderr, "%s\n", opened.status().message().c_str());
        return 1;
      }
      library = *std::move(opened);
    }
    const std::string answer = Answer(library->Compile(InputOf(request))) + "\n";
    if (std::fwrite(answer.data(), 1, answer.size(), out.get()) != answer.size()) return 1;
    if (std::fflush(out.get()) != 0) return 1;
  }
  free(line);
  return 0;
}

}  // namespace kbundle::builder
