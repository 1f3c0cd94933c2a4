// What most providers answer: no own steps, nothing beside the code.
#include "loader/provider/provider.h"

#include <fmt/format.h>

namespace kbundle {

Status Provider::VerifyKernelRow(const fb::Kernel& row) const {
  if (row.threads() == 0 && row.dynamic_shared() == 0) return Status();
  return DataLoss(fmt::format(
      "threads and dynamic shared memory beside the code of a kernel: of provider {} the step says "
      "them",
      name()));
}

Status Provider::VerifyOwn(const ProgramScope&, const fb::Step&) const {
  return DataLoss(fmt::format("provider {} has no steps of its own", name()));
}

Status Provider::VerifyOwnRow(const fb::Kernel& row) const {
  if (row.workspace() != 0) {
    return DataLoss(fmt::format("a step of provider {} has no workspace of its own", name()));
  }
  if (row.threads() == 0 && row.dynamic_shared() == 0) return Status();
  return DataLoss("threads and dynamic shared memory are for kernels");
}

Result<bool> Provider::ResolveOwn(Resolver&, const fb::Step&, const fb::Kernel&,
                                  ResolvedStep&) const {
  return Internal(fmt::format("provider {} has no steps of its own", name()));
}

void Provider::ExplainOwn(const ResolvedStep&, LaunchJson&) const {}

std::shared_ptr<CudaSteps> Provider::NewCudaSteps() const { return nullptr; }

const Provider* FindProvider(std::string_view name) {
  for (const Provider* provider : Providers()) {
    if (provider->name() == name) return provider;
  }
  return nullptr;
}

const Provider& ProviderOf(const fb::Index& index, const fb::Template& row) {
  return *FindProvider(index.providers()->Get(row.provider())->string_view());
}

const Provider& ProviderOf(const fb::Index& index, uint32_t variant) {
  return ProviderOf(index,
                    *index.templates()->Get(index.variants()->Get(variant)->template_index()));
}

}  // namespace kbundle
