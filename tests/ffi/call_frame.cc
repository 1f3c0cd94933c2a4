#include "ffi/call_frame.h"

#include <cstring>

struct XLA_FFI_Error {
  int code;
  std::string message;
};

namespace kbundle::testing {

int Site::types_registered = 0;
int Site::states_deleted = 0;

namespace {

std::map<int64_t, XLA_FFI_TypeInfo>& Types() {
  static std::map<int64_t, XLA_FFI_TypeInfo> types;
  return types;
}

Answer Take(XLA_FFI_Error* error) {
  if (error == nullptr) return {};
  Answer answer{error->code, error->message};
  delete error;
  return answer;
}

}  // namespace

// The functions of the API; each finds its Site in the execution context.
struct SiteApi {
  static Site& Of(XLA_FFI_ExecutionContext* context) { return *reinterpret_cast<Site*>(context); }

  static XLA_FFI_Error* CreateError(XLA_FFI_Error_Create_Args* args) {
    return new XLA_FFI_Error{args->errc, args->message};
  }
  static void GetMessage(XLA_FFI_Error_GetMessage_Args* args) {
    args->message = args->error->message.c_str();
  }
  static void DestroyError(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

  static XLA_FFI_Error* RegisterType(XLA_FFI_Type_Register_Args* args) {
    ++Site::types_registered;
    args->type_id->type_id = Site::types_registered;
    Types()[Site::types_registered] = *args->type_info;
    return nullptr;
  }
  static XLA_FFI_Error* SetState(XLA_FFI_State_Set_Args* args) {
    Site& site = Of(args->ctx);
    if (site.state != nullptr) return new XLA_FFI_Error{9, "State is already set"};
    site.state = args->state;
    return nullptr;
  }
  static XLA_FFI_Error* GetState(XLA_FFI_State_Get_Args* args) {
    args->state = Of(args->ctx).state;
    return args->state == nullptr ? new XLA_FFI_Error{5, "State is not set"} : nullptr;
  }
  static XLA_FFI_Error* GetStream(XLA_FFI_Stream_Get_Args* args) {
    args->stream = Of(args->ctx).stream;
    return nullptr;
  }
  static XLA_FFI_Error* GetDevice(XLA_FFI_DeviceOrdinal_Get_Args* args) {
    args->device_ordinal = Of(args->ctx).device;
    return nullptr;
  }
  static XLA_FFI_Error* CountThreads(XLA_FFI_ThreadPool_NumThreads_Args* args) {
    Site& site = Of(args->ctx);
    if (site.pool == Site::Pool::kNone) return new XLA_FFI_Error{14, "no thread pool"};
    *args->num_threads = site.pool_threads;
    return nullptr;
  }
  static XLA_FFI_Error* Schedule(XLA_FFI_ThreadPool_Schedule_Args* args) {
    Site& site = Of(args->ctx);
    const std::lock_guard lock(site.mutex_);
    ++site.scheduled;
    if (site.pool == Site::Pool::kInline) args->task(args->data);
    if (site.pool == Site::Pool::kThreads) site.threads_.emplace_back(args->task, args->data);
    if (site.pool == Site::Pool::kNeverRuns) site.late_.emplace_back(args->task, args->data);
    return nullptr;
  }
};

Site::Site(int api_minor) {
  api_.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api_.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, api_minor};
  api_.XLA_FFI_Error_Create = &SiteApi::CreateError;
  api_.XLA_FFI_Error_GetMessage = &SiteApi::GetMessage;
  api_.XLA_FFI_Error_Destroy = &SiteApi::DestroyError;
  api_.XLA_FFI_Type_Register = &SiteApi::RegisterType;
  api_.XLA_FFI_State_Set = &SiteApi::SetState;
  api_.XLA_FFI_State_Get = &SiteApi::GetState;
  api_.XLA_FFI_Stream_Get = &SiteApi::GetStream;
  api_.XLA_FFI_DeviceOrdinal_Get = &SiteApi::GetDevice;
  api_.XLA_FFI_ThreadPool_NumThreads = &SiteApi::CountThreads;
  api_.XLA_FFI_ThreadPool_Schedule = &SiteApi::Schedule;
}

Site::~Site() {
  for (std::thread& thread : threads_) thread.join();
  for (const auto& [task, data] : late_) task(data);
  if (state == nullptr) return;
  Types().begin()->second.deleter(state);  // both platforms' states are deleted alike
  ++states_deleted;
}

void Site::AddAttribute(const std::string& name, const Attribute& value) {
  spans_.push_back({name.data(), name.size()});
  names_.push_back(&spans_.back());
  const auto scalar = [&](XLA_FFI_DataType type, const void* data) {
    scalars_.push_back({type, const_cast<void*>(data)});
    attribute_types_.push_back(XLA_FFI_AttrType_SCALAR);
    attribute_pointers_.push_back(&scalars_.back());
  };
  const auto array = [&](XLA_FFI_DataType type, size_t size, const void* data) {
    arrays_.push_back({type, size, const_cast<void*>(data)});
    attribute_types_.push_back(XLA_FFI_AttrType_ARRAY);
    attribute_pointers_.push_back(&arrays_.back());
  };
  if (const auto* text = std::get_if<std::string>(&value)) {
    spans_.push_back({text->data(), text->size()});
    attribute_types_.push_back(XLA_FFI_AttrType_STRING);
    attribute_pointers_.push_back(&spans_.back());
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    scalar(XLA_FFI_DataType_S64, integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    scalar(XLA_FFI_DataType_F64, number);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    bools_.push_back(*flag);
    scalar(XLA_FFI_DataType_PRED, &bools_.back());
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    array(XLA_FFI_DataType_S64, integers->size(), integers->data());
  } else {
    const auto& numbers = std::get<std::vector<double>>(value);
    array(XLA_FFI_DataType_F64, numbers.size(), numbers.data());
  }
}

void Site::AddBuffers(const std::vector<std::pair<void*, std::vector<int64_t>>>& from,
                      std::vector<void*>* to) {
  for (const auto& [data, dims] : from) {
    buffers_.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, dtype, data,
                        static_cast<int64_t>(dims.size()), const_cast<int64_t*>(dims.data())});
    to->push_back(&buffers_.back());
  }
}

XLA_FFI_CallFrame* Site::Frame(XLA_FFI_ExecutionStage stage, bool buffers) {
  for (auto* list : {&operand_pointers_, &result_pointers_, &attribute_pointers_}) list->clear();
  names_.clear();
  attribute_types_.clear();
  for (const auto& [name, value] : attributes) AddAttribute(name, value);
  if (buffers) {
    AddBuffers(operands, &operand_pointers_);
    AddBuffers(results, &result_pointers_);
    if (workspace.second > 0) {
      workspace_dims_.push_back(workspace.second);
      buffers_.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, XLA_FFI_DataType_U8, workspace.first,
                          1, &workspace_dims_.back()});
      result_pointers_.push_back(&buffers_.back());
    }
  }
  operand_types_.assign(operand_pointers_.size(), XLA_FFI_ArgType_BUFFER);
  result_types_.assign(result_pointers_.size(), XLA_FFI_RetType_BUFFER);
  frame_.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame_.extension_start = nullptr;
  frame_.api = &api_;
  frame_.ctx = reinterpret_cast<XLA_FFI_ExecutionContext*>(this);
  frame_.stage = stage;
  frame_.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(operand_pointers_.size()),
                 operand_types_.data(), operand_pointers_.data()};
  frame_.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(result_pointers_.size()),
                 result_types_.data(), result_pointers_.data()};
  frame_.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr,       static_cast<int64_t>(names_.size()),
                  attribute_types_.data(),   names_.data(), attribute_pointers_.data()};
  return &frame_;
}

Answer Site::Call(XLA_FFI_Handler* handler, XLA_FFI_ExecutionStage stage, bool buffers) {
  return Take(handler(Frame(stage, buffers)));
}

Answer Site::Query(XLA_FFI_Handler* handler, XLA_FFI_Metadata* metadata) {
  XLA_FFI_Metadata_Extension extension{
      {XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata, nullptr}, metadata};
  *metadata = {};
  metadata->struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_CallFrame* frame = Frame(XLA_FFI_ExecutionStage_EXECUTE, false);
  frame->extension_start = &extension.extension_base;
  return Take(handler(frame));
}

}  // namespace kbundle::testing
