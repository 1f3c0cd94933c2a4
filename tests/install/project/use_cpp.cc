// use_cpp BUNDLE: the loader's own C++ interface, from the archive.
#include <kbundle/bundle.h>
#include <kbundle/describe.h>
#include <kbundle/runtime.h>

#include <cstdio>
#include <numeric>

using namespace kbundle;

static Status Run(const char* path) {
  KB_ASSIGN_OR_RETURN(const std::shared_ptr<const Bundle> bundle, Bundle::Open(path));
  ProblemSpec spec;
  spec.operands = {TensorSpec{.dtype = DType::kF32, .dims = {3, 5}, .strides = {}}};
  KB_ASSIGN_OR_RETURN(const Problem problem, bundle->MakeProblem("twice.forward", spec));
  const std::string explained = ExplainJson(*bundle, problem, HostDevice());
  KB_ASSIGN_OR_RETURN(const auto plan,
                      Runtime::Global().MakePlan(bundle, problem, Device::Kind::kHost));
  const std::string variant = bundle->VariantId(plan->variants()[0]);
  if (explained.find(variant) == std::string::npos) return Status(StatusCode::kInternal, explained);

  std::vector<float> x(15), y(15, -1);
  std::iota(x.begin(), x.end(), -7.0f);
  void* const operands[] = {x.data()};
  void* const results[] = {y.data()};
  KB_RETURN_IF_ERROR(plan->Launch(nullptr, {.operands = operands, .results = results}));
  std::printf("%s %g\n", variant.c_str(), y[14]);
  return y[14] == 14 ? Status() : Status(StatusCode::kInternal, "wrong");
}

int main(int count, char** words) {
  const Status status =
      count == 2 ? Run(words[1]) : Status(StatusCode::kInvalidArgument, "use_cpp BUNDLE");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
