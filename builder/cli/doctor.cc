// One verdict is drawn from the findings, once, and both forms of the output and the exit code show
// that one; what each finding means for a build is decided in doctor_findings.cc.
#include "builder/cli/doctor.h"

#include <string>
#include <vector>

#include "builder/cli/doctor_findings.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/support/process.h"
#include "builder/tools/served_gpus.h"
#include "kbundle/json.h"

namespace kbundle::builder {
namespace {

using State = Finding::State;

const char* Word(const Finding& finding) {
  if (finding.state == State::kWorks) return "ok";
  if (finding.state == State::kBroken) return "broken";
  return finding.required ? "missing" : "absent";
}

// The one thing to do: about what stops a build, then what is there and does not work, then the
// work itself.
std::string NextStep(const std::vector<Finding>& findings, const std::vector<std::string>& paths) {
  for (const bool stops : {true, false}) {
    for (const Finding& finding : findings) {
      if (stops ? finding.ok() : finding.state != State::kBroken) continue;
      return finding.part + ": " + finding.advice;
    }
  }
  if (paths.empty()) return "kbundle new mylib, which writes a library to start from";
  std::vector<std::string> words = {"kbundle", "build"};
  words.insert(words.end(), paths.begin(), paths.end());
  words.insert(words.end(), {"-o", "out.kb"});
  return ShellCommand(words);
}

void PrintDoctorText(const Terminal& terminal, const std::vector<Finding>& findings, bool ready,
                     const std::string& next) {
  Table table({"", "PART", "VERSION", "NEEDED BY", "WHERE"});
  for (const Finding& finding : findings) {
    const auto style = finding.state == State::kWorks ? Terminal::Style::kGood
                       : finding.ok()                 ? Terminal::Style::kWarning
                                                      : Terminal::Style::kBad;
    table.Row({terminal.Paint(style, Word(finding)), finding.part, finding.version,
               finding.needed_by, finding.state == State::kAbsent ? "" : finding.where});
  }
  table.Print(terminal);
  for (const Finding& finding : findings) {
    if (finding.state != State::kWorks) terminal.Line("\n" + finding.part + ": " + finding.advice);
  }
  terminal.Line(std::string("\n") + kServedBySm90a);
  terminal.Line(ready ? "\nready to build"
                      : "\nnot ready to build: see what is missing or broken above");
  terminal.Line("next: " + next);
}

void PrintDoctorJson(const Terminal& terminal, const std::vector<Finding>& findings, bool ready,
                     const std::string& next) {
  JsonWriter json;
  json.BeginObject().Key("can_build").Bool(ready).Key("next").Text(next);
  json.Key("serves")
      .BeginObject()
      .Key("sm_90a")
      .Text(kServedBySm90a)
      .EndObject()
      .Key("findings")
      .BeginArray();
  for (const Finding& finding : findings) {
    json.BeginObject().Key("part").Text(finding.part).Key("state").Text(Word(finding));
    json.Key("found").Bool(finding.state == State::kWorks);
    json.Key("required").Bool(finding.required).Key("needed_by").Text(finding.needed_by);
    json.Key("version").Text(finding.version).Key("where").Text(finding.where);
    json.Key("advice").Text(finding.advice).EndObject();
  }
  terminal.Line(json.EndArray().EndObject().text());
}

}  // namespace

int DoctorCommand::Run(const Terminal& terminal) const {
  std::vector<std::string> manifests;
  if (!paths.empty()) {
    Result<std::vector<std::string>> found = FindManifests(paths);
    if (!found.ok()) return terminal.Fail(found.status());
    manifests = std::move(*found);
  }
  const std::vector<Finding> findings = LookAround(manifests);
  bool ready = true;
  for (const Finding& finding : findings) ready = ready && finding.ok();
  const std::string next = NextStep(findings, paths);
  terminal.json() ? PrintDoctorJson(terminal, findings, ready, next)
                  : PrintDoctorText(terminal, findings, ready, next);
  return ready ? kExitOk : kExitNo;
}

}  // namespace kbundle::builder
