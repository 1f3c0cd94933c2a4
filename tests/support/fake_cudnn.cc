#include "support/fake_cudnn.h"

namespace kbundle::testing {

FakeCudnn* FakeCudnn::fake_ = nullptr;

FakeCudnn::FakeCudnn() {
  fake_ = this;
  api_.path = "/nowhere/libcudnn.so.9";
  api_.GetVersion = [] { return fake_->version; };
  api_.GetLastErrorString = [](char* text, size_t size) {
    std::strncpy(text, "made to fail", size);
  };
  api_.Create = [](CudnnHandle* handle) {
    std::lock_guard lock(fake_->mutex_);
    *handle = reinterpret_cast<void*>(uintptr_t{0x100} + static_cast<uintptr_t>(fake_->handles_++));
    ++fake_->alive_;
    return 0;
  };
  api_.Destroy = [](CudnnHandle) {
    std::lock_guard lock(fake_->mutex_);
    --fake_->alive_;
    return 0;
  };
  api_.SetStream = [](CudnnHandle handle, CUstream stream) {
    std::lock_guard lock(fake_->mutex_);
    fake_->streams_[handle] = stream;
    ++fake_->streams_set_;
    return 0;
  };
  api_.CreateDescriptor = [](int kind, CudnnDescriptor* descriptor) {
    std::lock_guard lock(fake_->mutex_);
    fake_->packs_ += kind == kCudnnVariantPackDescriptor;
    *descriptor = new Descriptor{kind, {}};
    ++fake_->alive_;
    return 0;
  };
  api_.DestroyDescriptor = [](CudnnDescriptor descriptor) {
    std::lock_guard lock(fake_->mutex_);
    delete static_cast<Descriptor*>(descriptor);
    --fake_->alive_;
    return 0;
  };
  api_.SetAttribute = [](CudnnDescriptor descriptor, int name, int type, int64_t count,
                         const void* values) {
    const auto* bytes = static_cast<const uint8_t*>(values);
    const auto size = static_cast<size_t>(count) * (type == kCudnnChar ? 1 : 8);
    static_cast<Descriptor*>(descriptor)->values[name].assign(bytes, bytes + size);
    return 0;
  };
  api_.Finalize = [](CudnnDescriptor descriptor) {
    if (static_cast<Descriptor*>(descriptor)->kind != kCudnnExecutionPlanDescriptor) return 0;
    const std::vector<char> text = Values<char>(descriptor, kCudnnPlanJson);
    std::lock_guard lock(fake_->mutex_);
    fake_->texts_.emplace_back(text.begin(), text.end());
    return fake_->fail_finalize;
  };
  api_.Execute = &Execute;
}

int FakeCudnn::Execute(CudnnHandle handle, CudnnDescriptor plan, CudnnDescriptor pack) {
  Run run;
  run.handle = handle;
  run.plan = plan;
  run.uids = Values<int64_t>(pack, kCudnnPackUids);
  run.pointers = Values<void*>(pack, kCudnnPackPointers);
  run.workspace = Values<void*>(pack, kCudnnPackWorkspace).at(0);
  {
    std::lock_guard lock(fake_->mutex_);
    fake_->shared_ |= !fake_->busy_.insert(handle).second;
    fake_->shared_ |= !fake_->busy_.insert(plan).second;
    run.stream = fake_->streams_[handle];
    fake_->runs_.push_back(run);
  }
  if (fake_->on_execute) fake_->on_execute(run);
  std::lock_guard lock(fake_->mutex_);
  fake_->busy_.erase(handle);
  fake_->busy_.erase(plan);
  return fake_->fail_execute;
}

std::vector<std::string> FakeCudnn::texts() const {
  std::lock_guard lock(mutex_);
  return texts_;
}
std::vector<FakeCudnn::Run> FakeCudnn::runs() const {
  std::lock_guard lock(mutex_);
  return runs_;
}
int FakeCudnn::handles() const {
  std::lock_guard lock(mutex_);
  return handles_;
}
int FakeCudnn::alive() const {
  std::lock_guard lock(mutex_);
  return alive_;
}
int FakeCudnn::packs() const {
  std::lock_guard lock(mutex_);
  return packs_;
}
int FakeCudnn::streams_set() const {
  std::lock_guard lock(mutex_);
  return streams_set_;
}
bool FakeCudnn::shared() const {
  std::lock_guard lock(mutex_);
  return shared_;
}

}  // namespace kbundle::testing
