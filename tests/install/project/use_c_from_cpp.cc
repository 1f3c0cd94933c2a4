// use_c_from_cpp BUNDLE: the C ABI from C++: its structs, which own themselves, in a unique_ptr.
#include <kbundle/kbundle_describe.h>

#include <cstdio>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>

static void Check(kb_error* error) {
  if (error == nullptr) return;
  const std::string message = kb_error_message(error);
  kb_error_free(error);
  throw std::runtime_error(message);
}

template <auto function>
struct Frees {
  template <typename Row>
  void operator()(Row* row) const {
    function(row);
  }
};
using Bundle = std::unique_ptr<kb_bundle, Frees<&kb_bundle_release>>;
using Plan = std::unique_ptr<kb_plan, Frees<&kb_plan_release>>;
using Info = std::unique_ptr<const kb_bundle_info, Frees<&kb_bundle_info_free>>;
using Explanation = std::unique_ptr<const kb_explanation, Frees<&kb_explanation_free>>;

// The function's last parameter, as what it is owned by.
template <typename Owner, typename Function, typename... Arguments>
static Owner Made(Function function, Arguments... arguments) {
  typename Owner::pointer out = nullptr;
  Check(function(arguments..., &out));
  return Owner(out);
}

static void Run(const char* path) {
  const auto bundle = Made<Bundle>(kb_bundle_open, path, nullptr);
  const auto info = Made<Info>(kb_bundle_info_make, bundle.get(), nullptr, KB_DETAIL_INTERFACE);
  const kb_op_info& op = *info->ops[0];
  if (info->op_count != 1 || op.operand_count != 1) throw std::runtime_error("another bundle");

  const int64_t dims[] = {3, 5};
  const kb_tensor x_spec{1, op.types[0]->dtypes[0], 2, dims, nullptr};
  const kb_problem_spec spec{&x_spec, 1, nullptr, 0};
  const auto why = Made<Explanation>(kb_explanation_make, bundle.get(), op.name, &spec,
                                     KB_DEVICE_HOST, nullptr, uint64_t{0});
  if (why->chosen == nullptr) throw std::runtime_error(why->error);

  const auto plan =
      Made<Plan>(kb_plan_make, bundle.get(), op.name, &spec, KB_DEVICE_HOST, int64_t{-1});
  float x[15], y[15] = {};
  std::iota(x, x + 15, -7.0f);
  void *operands[] = {x}, *results[] = {y};
  Check(kb_plan_launch_host(plan.get(), nullptr, operands, results, nullptr));
  std::printf("%s %g\n", why->chosen, y[14]);
}

int main(int count, char** words) try {
  if (count != 2) throw std::runtime_error("use_c_from_cpp BUNDLE");
  Run(words[1]);
  return 0;
} catch (const std::exception& exception) {
  std::fprintf(stderr, "%s\n", exception.what());
  return 1;
}
