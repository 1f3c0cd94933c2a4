// A candidate is a stranger: it may crash, hang, print, leak, or answer in our name. Which of these
// it was is told by its answer or by how the child ended, and only the child is lost. Memory that
// it took in earlier rounds is counted against it, not against the next one.
#include "builder/tune/measurer.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cmath>

#include "builder/problem/json.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
constexpr auto kStartLimit = std::chrono::seconds(60), kLoadLimit = std::chrono::seconds(300);

}  // namespace

ChildMeasurer::ChildMeasurer(const MeasurerOptions& options,
                             const std::vector<const SpaceProblem*>& problems,
                             const Bundle* outline)
    : options_(options), problems_(problems), outline_(*outline) {}

Status ChildMeasurer::Start() {
  if (child_ != nullptr) return Status();
  loaded_ = false;
  std::vector<std::string> words = {OwnExecutable(), "tune-worker",
                                    options_.cuda ? "cuda" : "host"};
  if (!options_.gpu.empty()) words.push_back(options_.gpu);
  KB_ASSIGN_OR_RETURN(child_, WorkerProcess::Start(words));
  const WorkerProcess::Answer answer = child_->Read(WorkerProcess::Clock::now() + kStartLimit);
  const Json json = Json::parse(answer.line, nullptr, false);
  if (json.is_object() && json.contains("facts")) {
    facts_ = json["facts"];
    ++restarts_;
    return Status();
  }
  child_->Kill();
  std::string why = child_->Kill().ToString() + " " + child_->Tail();
  child_.reset();
  if (json.is_object() && json.contains("error")) why = json["error"];
  return Unavailable("starting the measuring process: " + why);
}

Result<Json> ChildMeasurer::Facts() {
  KB_RETURN_IF_ERROR(Start());
  return facts_;
}

Status ChildMeasurer::Load(size_t number, const std::string& bundle) {
  KB_ASSIGN_OR_RETURN(files_, references_->Take(number));
  number_ = number;
  bundle_ = bundle;
  loaded_ = false;
  launches_ = 0;
  return LoadInChild();
}

Status ChildMeasurer::LoadInChild() {
  KB_RETURN_IF_ERROR(Start());
  if (loaded_) return Status();
  child_->set_limits({0, options_.output_bytes});
  child_->SetBaseline(0);
  child_->Send(Json{{"do", "problem"},
                    {"bundle", bundle_},
                    {"problem", ProblemToJson(outline_, problems_[number_]->problem)},
                    {"inputs", files_.inputs},
                    {"expected", files_.expected},
                    {"rotate", options_.rotate},
                    {"memory_limit", options_.memory_bytes}}
                   .dump());
  const WorkerProcess::Answer answer = child_->Read(WorkerProcess::Clock::now() + kLoadLimit);
  const Json json = Json::parse(answer.line, nullptr, false);
  if (json.is_object() && json.contains("ok")) {
    max_launches_ = json.at("max_launches");
    loaded_ = true;
    grown_.clear();
    child_->set_limits({options_.memory_bytes, options_.output_bytes});
    return Status();
  }
  if (json.is_object() && json.contains("error")) {
    return Unavailable("loading the problem's data: " + json["error"].get<std::string>());
  }
  const Measured lost = Lost(answer);
  return Unavailable("loading the problem's data: " + lost.message);
}

// The child is gone, or must go.
Measured ChildMeasurer::Lost(const WorkerProcess::Answer& answer) {
  Measured measured;
  switch (answer.event) {
    case WorkerProcess::Event::kTimeout:
      measured.kind = "hang";
      measured.message =
          fmt::format("no answer within {} s", options_.candidate_limit.count() / 1e3);
      break;
    case WorkerProcess::Event::kMemory:
      measured.kind = "memory";
      measured.message = fmt::format("took more than {} MiB", options_.memory_bytes >> 20);
      break;
    case WorkerProcess::Event::kOutput:
      measured.kind = "output";
      measured.message = fmt::format("printed more than {} KiB", options_.output_bytes >> 10);
      break;
    default:
      measured.signal = child_->Kill().signal;
      measured.kind = measured.signal == 0 || measured.signal == SIGABRT ? "abort" : "fault";
      measured.message = child_->Kill().ToString();
      if (const std::string tail = child_->Tail(); !tail.empty()) measured.message += ": " + tail;
  }
  child_.reset();
  loaded_ = false;
  return measured;
}

Measured ChildMeasurer::Ask(const std::string& variant, const Json& request, Json* answer) {
  Measured measured = AskOnce(variant, request, answer);
  if (measured.signal == SIGKILL) measured = AskOnce(variant, request, answer);
  return measured;
}

Measured ChildMeasurer::AskOnce(const std::string& variant, const Json& request, Json* answer) {
  Measured measured;
  if (const Status status = LoadInChild(); !status.ok()) {
    measured.kind = "load";
    measured.message = status.message();
    return measured;
  }
  // What it took in earlier rounds counts, so that a slow leak is seen, and seen as its own.
  int64_t& grown = grown_[variant];
  const int64_t before = child_->MemoryBytes();
  child_->SetBaseline(before - grown);
  child_->Send(request.dump());
  const WorkerProcess::Answer line =
      child_->Read(WorkerProcess::Clock::now() + options_.candidate_limit);
  if (line.event != WorkerProcess::Event::kLine) return Lost(line);
  grown += std::max<int64_t>(0, child_->MemoryBytes() - before);
  if (grown > options_.memory_bytes) return Lost({WorkerProcess::Event::kMemory, ""});
  *answer = Json::parse(line.line, nullptr, false);
  if (answer->is_object() && answer->value("ok", false)) return measured;
  if (!answer->is_object() || !answer->contains("failed")) {
    measured.kind = "output";  // a candidate may write anywhere, also here
    measured.message = "its process answered: " + line.line.substr(0, 200);
    child_.reset();
    return measured;
  }
  measured.kind = (*answer)["failed"];
  measured.message = answer->value("error", "");
  if (answer->value("lost", false)) child_.reset();
  return measured;
}

Measured ChildMeasurer::Check(const std::string& variant) {
  Json answer;
  Measured measured = Ask(variant, {{"do", "check"}, {"variant", variant}}, &answer);
  if (!measured.ok()) return measured;
  measured.worst = answer.value("worst", 0.0);
  measured.workspace = answer.value("workspace", int64_t{0});
  const double ns = answer.value("ns", 0.0);
  // The first candidate that is right decides for all of the problem, so that they are comparable.
  if (launches_ == 0 && ns > 0) {
    launches_ = std::clamp(static_cast<int>(std::ceil(options_.sample_ns / ns)), 1, max_launches_);
  }
  return measured;
}

Measured ChildMeasurer::Time(const std::string& variant, int, int samples) {
  Json answer;
  const Json request = {{"do", "time"},
                        {"variant", variant},
                        {"launches", std::max(1, launches_)},
                        {"samples", samples}};
  Measured measured = Ask(variant, request, &answer);
  if (!measured.ok()) return measured;
  measured.ns = answer.at("ns").get<std::vector<double>>();
  measured.state = answer.value("state", Json::object());
  return measured;
}

void ChildMeasurer::Drop(size_t number) { references_->Drop(number); }

}  // namespace kbundle::builder
