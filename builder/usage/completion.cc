// Three shells, three notations for one list. Descriptions hold quotes, brackets and colons that
// each shell reads in its own way: bash is given none, the others what is escaped for them.
#include "builder/usage/completion.h"

#include <fmt/format.h>

namespace kbundle::builder {
namespace {

std::string Escaped(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) out += '\\';
    out += c;
  }
  return out;
}

// Within single quotes of a POSIX shell; fish takes the same.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// What stands at a verb's places, if that is one of a few words.
std::string Choices(const VerbText& verb) {
  std::string all;
  for (const OptionText& argument : verb.arguments) all += argument.choices;
  return all;
}

std::string Bash(const std::vector<VerbText>& verbs) {
  std::string names, cases;
  for (const VerbText& verb : verbs) {
    names += " " + verb.name;
    cases += "    " + verb.name + ") words='";
    for (const OptionText& option : verb.options) {
      cases += option.long_name + " ";
      if (!option.short_name.empty()) cases += option.short_name + " ";
    }
    cases.back() = '\'';
    const std::string choices = Choices(verb);
    if (!choices.empty()) cases += " places='" + choices + "'";
    cases += " ;;\n";
  }
  return fmt::format(
      "# bash: eval \"$(kbundle completion bash)\"\n"
      "_kbundle() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} words='' places=''\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}  esac\n"
      "  case \"${{COMP_WORDS[COMP_CWORD - 1]}}\" in -*) places='' ;; esac\n"
      "  case \"$current\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
      "    *) if [ -n \"$places\" ]; then COMPREPLY=($(compgen -W \"$places\" -- \"$current\"))\n"
      "       else mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); fi ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _kbundle kbundle\n",
      names.substr(1), cases);
}

std::string Zsh(const std::vector<VerbText>& verbs) {
  std::string names, cases;
  for (const VerbText& verb : verbs) {
    names += "    " + Quoted(verb.name + ":" + verb.about) + "\n";
    cases += "    " + verb.name + ") _arguments";
    for (const OptionText& option : verb.options) {
      const std::string about =
          "[" + Escaped(option.about, "[]\\") + "]" + (option.takes_value ? ":value:_files" : "");
      for (const std::string& name : {option.short_name, option.long_name}) {
        if (!name.empty()) cases += " \\\n      " + Quoted("*" + name + about);
      }
    }
    const std::string choices = Choices(verb);
    cases += choices.empty() ? " \\\n      '*:file:_files' ;;\n"
                             : " \\\n      '*:word:(" + choices + ")' ;;\n";
  }
  return fmt::format(
      "#compdef kbundle\n"
      "# zsh: eval \"$(kbundle completion zsh)\", or as a file _kbundle in a folder of $fpath\n"
      "_kbundle() {{\n"
      "  local -a verbs\n"
      "  verbs=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then _describe command verbs; return; fi\n"
      "  local verb=$words[2]\n"
      "  shift words; (( CURRENT-- ))\n"
      "  case $verb in\n{}  esac\n"
      "}}\n"
      // The file is the function's body where zsh found it in $fpath: then it is the first call.
      "if [ \"$funcstack[1]\" = _kbundle ]; then _kbundle \"$@\"; else compdef _kbundle kbundle; "
      "fi\n",
      names, cases);
}

std::string Fish(const std::vector<VerbText>& verbs) {
  std::string out = "# fish: kbundle completion fish | source\n";
  for (const VerbText& verb : verbs) {
    out += fmt::format("complete -c kbundle -n __fish_use_subcommand -f -a {} -d {}\n", verb.name,
                       Quoted(verb.about));
  }
  for (const VerbText& verb : verbs) {
    const std::string choices = Choices(verb);
    if (!choices.empty()) {
      out += fmt::format("complete -c kbundle -n '__fish_seen_subcommand_from {}' -f -a '{}'\n",
                         verb.name, choices);
    }
    for (const OptionText& option : verb.options) {
      out += fmt::format("complete -c kbundle -n '__fish_seen_subcommand_from {}'", verb.name);
      if (!option.short_name.empty()) out += " -s " + option.short_name.substr(1);
      out += " -l " + option.long_name.substr(2) + (option.takes_value ? " -r" : "");
      out += " -d " + Quoted(option.about) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string Completion(const std::string& shell, const std::vector<VerbText>& verbs) {
  return shell == "bash" ? Bash(verbs) : shell == "zsh" ? Zsh(verbs) : Fish(verbs);
}

}  // namespace kbundle::builder
