// `python -m kbundle --json` knows the bundles, this program the devices: which part of a library
// serves which device is put together here.
#include "builder/tools/python_bundles.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "builder/support/process.h"

namespace kbundle::builder {
namespace {

using nlohmann::json;
using State = Finding::State;

std::vector<std::string> TargetsOf(const json& part) {
  return part.value("targets", std::vector<std::string>());
}

// Of the best of the targets, of equal fits the nearer; 0: none runs there.
int FitOf(const std::vector<std::string>& targets, const Device& device) {
  int best = 0;
  for (const std::string& name : targets) {
    const Result<Target> target = Target::Parse(name);
    const int fit = target.ok() ? target->Fit(device) : 0;
    if (fit > 0) best = std::max(best, (fit << 16) + (target->major << 8) + target->minor);
  }
  return best;
}

Finding OfPart(const json& part, const json& parts, const std::string& bundle,
               const std::vector<Machine>& devices) {
  Finding finding;
  const std::vector<std::string> targets = TargetsOf(part);
  finding.part = fmt::format("part of {} for {}", bundle, fmt::join(targets, ", "));
  finding.state = State::kWorks;
  finding.where = part.value("path", "");
  std::vector<std::string> served;
  for (const Machine& machine : devices) {
    const int fit = FitOf(targets, machine.device);
    const auto better = [&](const json& other) {
      return FitOf(TargetsOf(other), machine.device) > fit;
    };
    if (fit > 0 && std::none_of(parts.begin(), parts.end(), better)) served.push_back(machine.name);
  }
  finding.version =
      served.empty() ? "no device here" : fmt::format("serves {}", fmt::join(served, ", "));
  return finding;
}

// Devices that an absent part has better code for than any that is there.
std::vector<std::string> Wanting(const json& absent, const json& parts,
                                 const std::vector<Machine>& devices) {
  std::vector<std::string> names;
  for (const Machine& machine : devices) {
    int best = 0;
    for (const json& part : parts) best = std::max(best, FitOf(TargetsOf(part), machine.device));
    if (FitOf(TargetsOf(absent), machine.device) <= best) continue;
    names.push_back(machine.name + " (" + machine.device.ToString() + ")");
  }
  return names;
}

void AddBundle(const json& bundle, const std::vector<Machine>& devices,
               std::vector<Finding>* findings) {
  Finding one;
  const std::string error = bundle.value("error", "");
  one.part = "bundle of " + bundle.value("origin", "");
  one.state = error.empty() ? State::kWorks : State::kBroken;
  one.version = std::to_string(bundle["ops"].size()) + " ops";
  one.where = bundle.value("path", "");
  one.advice = error;
  findings->push_back(std::move(one));
  if (!error.empty()) return;
  const json none = json::array();
  const json& parts = bundle.contains("parts") ? bundle["parts"] : none;
  const json& absent = bundle.contains("absent") ? bundle["absent"] : none;
  const std::string name = bundle.value("name", "");
  for (const json& part : parts) findings->push_back(OfPart(part, parts, name, devices));
  for (const json& part : absent) {
    const std::vector<std::string> wanting = Wanting(part, parts, devices);
    if (wanting.empty()) continue;
    Finding finding;
    finding.part = fmt::format("part of {} for {}", name, fmt::join(TargetsOf(part), ", "));
    finding.advice =
        fmt::format("it would serve {}: {}", fmt::join(wanting, ", "), part.value("install", ""));
    findings->push_back(std::move(finding));
  }
}

}  // namespace

std::vector<Finding> FindBundles(const std::string& python, const std::vector<Machine>& devices) {
  Finding package;
  package.part = "Python kbundle";
  package.advice =
      "kbundle.jax, kbundle.torch and `python -m kbundle`, which lists the bundles that " +
      (python.empty() ? "a Python" : python) + " finds, need it: pip install kbundle";
  ProcessOptions options;
  options.arguments = {python, "-m", "kbundle", "--json"};
  for (char** one = environ; *one != nullptr; ++one) options.environment.emplace_back(*one);
  options.limit = std::chrono::seconds(60);
  const auto result = python.empty() ? Result<ProcessResult>(NotFound("")) : RunProcess(options);
  if (!result.ok()) return {package};
  // Warnings may stand before it.
  const size_t begin = std::min(result->output.rfind("{\"version\""), result->output.size());
  const json found = json::parse(result->output.substr(begin), nullptr, false);
  if (!found.is_object() || !found.contains("bundles")) {
    if (result->output.find("No module named kbundle") != std::string::npos) return {package};
    package.state = State::kBroken;
    package.advice = "`" + ShellCommand(options.arguments) + "`: " + result->Describe() + ": " +
                     result->output.substr(0, 2000);
    return {package};
  }
  package.state = State::kWorks;
  package.version = found.value("version", "");
  package.where = found.value("library", "");
  std::vector<Finding> findings = {package};
  for (const json& bundle : found["bundles"]) AddBundle(bundle, devices, &findings);
  return findings;
}

}  // namespace kbundle::builder
