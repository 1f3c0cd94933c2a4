// The providers that kbundle carries: a line for each.
#include <algorithm>

#include "builder/provider/provider.h"

// Name##Provider() is in the provider's own folder, which nothing here includes.
#define KB_PROVIDERS(X) X(Cuda) X(Host) X(Triton) X(Cudnn) X(CublasLt) X(Warp) X(Cute)

namespace kbundle::builder {

#define KB_DECLARE(Name) const Provider* Name##Provider();
KB_PROVIDERS(KB_DECLARE)
#undef KB_DECLARE

namespace {

std::vector<const Provider*>& List() {
#define KB_CALL(Name) Name##Provider(),
  static std::vector<const Provider*> list = {KB_PROVIDERS(KB_CALL)};
#undef KB_CALL
  return list;
}

}  // namespace

const std::vector<const Provider*>& Providers() { return List(); }

const Provider* FindProvider(std::string_view name) {
  const auto found = std::find_if(List().begin(), List().end(),
                                  [&](const Provider* one) { return one->name() == name; });
  return found == List().end() ? nullptr : *found;
}

void LoadGpuLibraries(const Toolchain& tools) {
  for (const Provider* provider : List()) provider->LoadLibraries(tools);
}

AddedProvider::AddedProvider(const Provider* provider) : provider_(provider) {
  List().push_back(provider_);
}

AddedProvider::~AddedProvider() { std::erase(List(), provider_); }

void SetProblemPoints(Op* op) {
  for (Template& variant : op->templates) {
    if (variant.provider != nullptr) variant.provider->SetProblemPoints(*op, &variant);
  }
}

}  // namespace kbundle::builder
