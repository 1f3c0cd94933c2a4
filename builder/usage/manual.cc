// roff takes a line that begins with a dot or a quote for a request, and a hyphen for one that may
// be broken: texts are escaped line by line.
#include "builder/usage/manual.h"

#include <fmt/format.h>

#include <sstream>

namespace kbundle::builder {
namespace {

std::string Roff(const std::string& text) {
  std::string out;
  bool first = true;
  for (const char c : text) {
    if (first && (c == '.' || c == '\'')) out += "\\&";
    first = c == '\n';
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return out;
}

std::string Entry(const OptionText& option) {
  std::string names = "\\fB" + Roff(option.long_name) + "\\fR";
  if (!option.short_name.empty()) names = "\\fB" + Roff(option.short_name) + "\\fR, " + names;
  if (option.takes_value) names += " \\fIVALUE\\fR";
  return ".TP\n" + names + "\n" + Roff(option.about) + "\n";
}

std::string Section(const VerbText& verb) {
  std::string out = ".SS kbundle " + Roff(verb.name) + "\n" + Roff(verb.about) + ".\n";
  for (const OptionText& argument : verb.arguments) {
    out += ".TP\n\\fI" + Roff(argument.long_name) + "\\fR\n" + Roff(argument.about) + "\n";
  }
  for (const OptionText& option : verb.options) out += Entry(option);
  return out + ".PP\n.nf\n" + Roff(verb.example) + "\n.fi\n";
}

}  // namespace

std::string ManualPage(const std::string& version, const std::string& about,
                       const std::string& environment, const std::vector<VerbText>& verbs) {
  std::string out = fmt::format(
      ".TH KBUNDLE 1 \"\" \"kbundle {}\" \"\"\n"
      ".SH NAME\nkbundle \\- kernels compiled once and shipped as one file\n"
      ".SH SYNOPSIS\n.B kbundle\n.I VERB\n[\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n.nf\n{}\n.fi\n.SH VERBS\n",
      version, Roff(about));
  for (const VerbText& verb : verbs) out += Section(verb);
  return out + ".SH ENVIRONMENT\n.nf\n" + Roff(environment) + "\n.fi\n";
}

}  // namespace kbundle::builder
