// A unit compiled elsewhere must be the unit of the build, so what decides units is declared once
// and added to each verb that makes them; names between commas are split here, where an empty one
// is seen.
#include "builder/cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "builder/provider/provider.h"
#include "builder/usage/error_table.h"

namespace kbundle::builder {
namespace {

constexpr char kPathText[] = "Folder with *.toml op families, in it or in its folders, or a file";
constexpr char kCompilerPythonText[] =
    "Python with Triton, Warp or CuTe DSL [$KBUNDLE_PYTHON, $VIRTUAL_ENV, .venv of the checkout, "
    "python3]";

// Names joined by commas, given once or more often. CLI11's own delimiter passes over empty ones.
void AddNames(CLI::App& verb, const std::string& option, const std::string& what,
              std::vector<std::string>* names) {
  const auto split =
      [names, name = option.substr(option.find("--"))](const std::vector<std::string>& values) {
        for (const std::string& value : values) {
          for (size_t begin = 0; begin <= value.size();) {
            const size_t end = std::min(value.find(',', begin), value.size());
            if (end == begin) {
              throw CLI::ValidationError(
                  name, "an empty name in '" + value + "'; names stand between commas, as in a,b");
            }
            names->push_back(value.substr(begin, end - begin));
            begin = end + 1;
          }
        }
      };
  verb.add_option_function<std::vector<std::string>>(option, split, what)
      ->allow_extra_args(false)
      ->type_name("TEXT,...");
}

std::string ProviderNames() {
  std::string names;
  for (const Provider* provider : Providers()) {
    names += (names.empty() ? "" : ",") + std::string(provider->name());
  }
  return names;
}

// What decides which units there are.
void AddWhatIsBuilt(CLI::App& verb, BuildOptions* options) {
  AddNames(verb, "-t,--target",
           "Targets, comma-separated; host is x86-64-v2,x86-64-v3,x86-64-v4; armv8-a "
           "is never meant unless it is named "
           "[sm_80,sm_90a,sm_100f,portable,host]",
           &options->targets);
  AddNames(verb, "--provider", "Only variants of these, comma-separated [" + ProviderNames() + "]",
           &options->providers);
  verb.add_option("--problems", options->problems,
                  "Also list the problems of this file, as record_problems saves them");
  verb.add_option("--python", options->python, kCompilerPythonText);
}

void AddStores(CLI::App& verb, BuildOptions* options) {
  verb.add_option(
      "--cache", options->cache_dir,
      "Folder of compiled objects [$KBUNDLE_CACHE, $XDG_CACHE_HOME/kbundle, ~/.cache/kbundle]");
  verb.add_option("--shared-cache", options->shared_cache,
                  "Such a folder behind it, for many machines; FOLDER:ro only reads it "
                  "[$KBUNDLE_SHARED_CACHE]");
}

void AddBuild(CLI::App& app, BuildCommand* command) {
  CLI::App& verb = AddVerb(app, "build", "Compile op families and write one bundle",
                           "kbundle build kernels -o build/kernels.kb --target sm_90a,x86-64-v3");
  BuildOptions& options = command->options;
  verb.add_option("PATH", options.paths, kPathText)->required();
  verb.add_option("-o,--output", options.output, "The bundle to write");
  verb.add_option("--name", options.name,
                  "Name by which programs refer to it [file name without .kb]");
  AddWhatIsBuilt(verb, &options);
  verb.add_option("-j,--jobs", options.jobs, "Compiles at a time [one per CPU]")
      ->check(CLI::Range(1, 1024));
  AddStores(verb, &options);
  verb.add_flag("--lean", options.lean,
                "Leave out the variants that no problem's choice can come to");
  verb.add_flag("--keep-going", options.keep_going, "After a failed compile, still do the others");
  verb.add_flag("--dry-run", options.dry_run, "Say what would be compiled, and stop");
  CLI::Option* plan = verb.add_flag(
      "--plan", options.plan,
      "Print every code object as JSON, with its inputs and the command that makes it, and stop");
  verb.add_flag("--no-compile", options.no_compile,
                "Fail where something is not in the cache, and say which command makes it")
      ->excludes(plan);
  verb.add_flag("--explain", options.explain, "Say why each object is compiled again");
  verb.add_option("--only", options.only, "Compile just this variant's code, and write no bundle");
  verb.add_option("--depfile", options.depfile,
                  "Write which files were read, as make and ninja take it");
  verb.add_flag("--force", options.force, "Replace an output that is no bundle");
}

void AddCompileUnit(CLI::App& app, CompileUnitCommand* command) {
  CLI::App& verb = AddVerb(app, "compile-unit", "Compile one code object of a build into the cache",
                           "kbundle build kernels --plan > plan.json\n"
                           "  kbundle compile-unit --plan plan.json --number 17 "
                           "--shared-cache /nfs/kbundle");
  BuildOptions& options = command->options;
  verb.add_option("PATH", options.paths, kPathText);
  verb.add_option("--plan", command->plan,
                  "What `kbundle build --plan` printed; its paths are relative to this folder");
  verb.add_option("--number", command->number, "Which unit of the plan; the first is 0")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--unit", command->wanted.label, "Which unit of PATH, as a plan names it");
  verb.add_option("--key", command->wanted.key,
                  "Its key as the plan has it: another one here is an error");
  verb.add_option("--input", command->inputs,
                  "NAME=SHA256 of an input where the plan was made, to name what differs")
      ->allow_extra_args(false);
  AddWhatIsBuilt(verb, &options);
  AddStores(verb, &options);
}

void AddCache(CLI::App& app, CacheCommand* command) {
  CLI::App& verb = AddVerb(app, "cache", "Show, prune or verify the folder of compiled objects",
                           "kbundle cache prune --unused 30d --max-size 5G");
  verb.add_option("ACTION", command->action, "status, prune or verify [status]")
      ->check(CLI::IsMember({"status", "prune", "verify"}));
  verb.add_option("--cache", command->folder,
                  "The folder, as for build; a shared one is named here too");
  verb.add_option("--unused", command->unused, "What no build used for so long goes: 12h, 30d, 8w");
  verb.add_option("--max-size", command->max_size,
                  "What is beyond this goes, least recently used first: 500M, 5G");
}

// "TEXT:{a,b}", as a check that knows all words calls an option's type, as "a b".
std::string ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return "";
  std::string words = type.substr(open + 1, close - open - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

// Tags for `kbundle explain-error`, which takes more than them.
std::string Tags() {
  std::string tags;
  for (const ErrorRow& row : ErrorTable()) tags += std::string(" ") + StatusCodeName(row.code);
  return tags.substr(1);
}

}  // namespace

CLI::App& AddVerb(CLI::App& app, const char* name, const char* what, const char* example) {
  CLI::App& verb = *app.add_subcommand(name, what);
  verb.footer(std::string("\nExample:\n  ") + example);
  // What every verb has is no verb's own: main reads these three into the Terminal.
  verb.add_flag("--json")->description("As JSON on standard output, failures too");
  CLI::Option* quiet = verb.add_flag("-q,--quiet");
  quiet->description("No progress: results, warnings and errors alone");
  verb.add_flag("-v,--verbose")
      ->description("Also the environment that counts, each finished part, and the time it took")
      ->excludes(quiet);
  return verb;
}

std::vector<VerbText> TextsOf(const CLI::App& app) {
  std::vector<VerbText> verbs;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    VerbText& text = verbs.emplace_back();
    text.name = verb->get_name();
    text.about = verb->get_description();
    text.example = verb->get_footer().substr(1);
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_group().empty()) continue;
      const bool by_place = !option->nonpositional();
      OptionText& out = (by_place ? text.arguments : text.options).emplace_back();
      out.about = option->get_description();
      out.choices = option->get_name() == "TAG" ? Tags() : ChoicesOf(*option);
      out.takes_value = option->get_items_expected_max() > 0;
      out.long_name = by_place ? option->get_name() : "--" + option->get_lnames().front();
      if (!option->get_snames().empty()) out.short_name = "-" + option->get_snames().front();
    }
  }
  return verbs;
}

void AddBuildVerbs(CLI::App& app, BuildCommand* build, CompileUnitCommand* compile_unit,
                   CacheCommand* cache) {
  AddBuild(app, build);
  AddCompileUnit(app, compile_unit);
  AddCache(app, cache);
}

std::string RefuseEmpty(const std::string& value) {
  return value.empty() ? "an empty name; leave the option out, or name one" : "";
}

// Of the verbs that read a bundle (builder/library).
constexpr char kFileText[] = "The bundle, or its folder; of a library's base, its parts too";

void AddReaderVerbs(CLI::App& app, InspectCommand* inspect_command, VerifyCommand* verify_command,
                    ExplainCommand* explain_command, ExtractCommand* extract_command) {
  CLI::App& inspect = AddVerb(app, "inspect", "Show what is inside a bundle",
                              "kbundle inspect kernels.kb --op mylib.normalize");
  inspect.add_option("FILE", inspect_command->file, kFileText)->required();
  inspect.add_option("--op", inspect_command->op, "Every variant of this op");
  inspect.add_option("--html", inspect_command->html,
                     "Draw it instead, as one file for browsers; - is standard output");
  inspect.add_flag("--force", inspect_command->force, "Replace an output that is no such page");

  CLI::App& verify = AddVerb(app, "verify", "Check every byte, and what a target would miss",
                             "kbundle verify kernels.kb --target sm_90a");
  verify.add_option("FILE", verify_command->file, kFileText)->required();
  verify
      .add_option("-t,--target", verify_command->target,
                  "Say which op and listed problem has no exact variant there; host: this CPU")
      ->check(RefuseEmpty);
  verify.add_option("--problems", verify_command->problems,
                    "Check the problems of this file, as record_problems saves them, instead");
  verify.add_flag("--strict", verify_command->strict,
                  "Also refuse variants that conformance never ran");

  CLI::App& explain =
      AddVerb(app, "explain", "Say which variant a problem gets, and why not the others",
              "kbundle explain kernels.kb mylib.normalize --operand x=bf16[2048,512] "
              "gamma=bf16[512] --attr scale=0.125 --target sm_90a");
  ExplainCommand& command = *explain_command;
  explain.add_option("FILE", command.file, kFileText)->required();
  explain.add_option("OP", command.op, "family.op")->required();
  explain.add_option("--operand", command.operands,
                     "NAME=DTYPE[DIM,...] of each operand; behind it {STRIDE,...} in elements");
  explain.add_option("--attr", command.attributes, "NAME=VALUE of each attribute that is given");
  explain.add_option("-t,--target", command.target, "Where it would run [this machine's CPU]")
      ->check(RefuseEmpty);
  explain.add_option("--sm-count", command.sm_count, "Multiprocessors of the GPU [132, an H200's]")
      ->check(CLI::Range(1, 65536));
  explain
      .add_option("--align", command.alignment, "Bytes that every address is a multiple of [16]")
      ->check(CLI::IsMember({1, 2, 4, 8, 16}));
  explain.add_flag("--strict", command.strict, "As a strict process would choose");
  explain.add_flag("--deterministic", command.deterministic,
                   "As for a caller who wants the same bits of every launch");
  explain.add_flag("--batch-invariant", command.batch_invariant,
                   "As for a caller whose bits may not depend on what else is in a batch");

  CLI::App& extract = AddVerb(app, "extract", "Write a variant's code object to a file",
                              "kbundle extract kernels.kb 'mylib.normalize/warp_row"
                              "[T=bf16,VEC=8]@sm_90a' -o warp_row.cubin");
  extract.add_option("FILE", extract_command->file, kFileText)->required();
  extract.add_option("VARIANT", extract_command->variant, "Id as `inspect` prints it")->required();
  extract.add_option("-o,--output", extract_command->output, "File to write; - is standard output")
      ->required();
  extract.add_flag("--force", extract_command->force, "Replace an output that is no code object");
  extract
      .add_option("--step", extract_command->step,
                  "Which step's, where steps have different code objects")
      ->check(CLI::Range(1, 64));
}

void AddTextVerbs(CLI::App& app, std::string* shell, ErrorQuestion* error) {
  AddVerb(app, "schema", "Print the keys of manifests as a JSON Schema, for editors",
          "kbundle schema > manifest.schema.json");
  AddVerb(app, "completion", "Print what a shell needs to complete verbs and options",
          "eval \"$(kbundle completion bash)\"")
      .add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  CLI::App& explain =
      AddVerb(app, "explain-error", "Say what an error tag means, and what cures it",
              "kbundle explain-error FAILED_PRECONDITION");
  explain.add_option("TAG", error->tag, "Tag, code, or a message that holds one [all of them]");
  explain.add_flag("--markdown", error->markdown, "As Markdown");
  AddVerb(app, "man", "Print the manual page of the command", "kbundle man | man -l -");
}

}  // namespace kbundle::builder
