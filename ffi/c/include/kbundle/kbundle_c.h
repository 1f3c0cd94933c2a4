/* The C ABI of libkbundle.so: open a bundle, ask for a plan, launch it on a stream.
 *
 * Every function returns NULL for success or a kb_error that the caller frees. Out parameters are
 * set only on success. Handles may be used from any thread; a kb_plan may be launched from several
 * threads at once. Strings returned through char** are freed with kb_string_free. No exception
 * crosses this boundary. ABI version: kb_abi_version(); functions are only ever added.
 */
#ifndef KBUNDLE_C_H_
#define KBUNDLE_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KB_EXPORT __attribute__((visibility("default")))
#else
#define KB_EXPORT
#endif

typedef struct kb_error kb_error;
typedef struct kb_bundle kb_bundle;
typedef struct kb_plan kb_plan;

KB_EXPORT int32_t kb_abi_version(void); /* 1 */
KB_EXPORT const char* kb_version(void); /* "0.1.0" */

KB_EXPORT int32_t kb_error_code(const kb_error* error);        /* canonical code 1..16 */
KB_EXPORT const char* kb_error_message(const kb_error* error); /* lives as long as the error */
KB_EXPORT void kb_error_free(kb_error* error);
KB_EXPORT void kb_string_free(char* text);

/* Passed as int32_t: to C++, another number in an enum is undefined before it can be refused. */
typedef enum { KB_DEVICE_CUDA = 0, KB_DEVICE_HOST = 1 } kb_device_kind;

/* dtype: the numbers of kbundle/dtype.h (1 bool .. 16 e8m0). strides in elements or NULL (dense).
 */
typedef struct {
  int32_t present;
  int32_t dtype;
  int32_t rank;
  const int64_t* dims;
  const int64_t* strides;
} kb_tensor;

typedef enum {
  KB_BOOL = 0,
  KB_INT = 1,
  KB_FLOAT = 2,
  KB_TEXT = 3,
  KB_INT_ARRAY = 4,
  KB_FLOAT_ARRAY = 5
} kb_value_kind;

typedef struct {
  const char* name;
  int32_t kind;            /* kb_value_kind */
  int64_t integer;         /* KB_BOOL, KB_INT */
  double number;           /* KB_FLOAT */
  const char* text;        /* KB_TEXT: enum or dtype name */
  const int64_t* integers; /* arrays */
  const double* numbers;
  size_t count;
} kb_attribute;

typedef struct {
  const kb_tensor* operands;
  size_t operand_count;
  const kb_attribute* attributes;
  size_t attribute_count;
} kb_problem_spec;

/* ---- bundles ---- */
/* Opens (or shares) the file under a process-wide name; name NULL: the one inside the file. */
KB_EXPORT kb_error* kb_bundle_open(const char* path, const char* name, kb_bundle** out);
/* The bundle itself stays open while programs use it. */
KB_EXPORT void kb_bundle_release(kb_bundle* bundle);
KB_EXPORT kb_error* kb_bundle_verify(const kb_bundle* bundle);
/* JSON: {"name","path","content_id","file_bytes","provenance":{},"targets":[..],"devices":[..],
 *  "ops":[{"name","summary","interface":"16 hex","vmap":"leading|loop|none","coordinates":[..],
 *   "types":[{"name","dtypes","attribute"}],
 *   "operands":[{"name","shape","optional","strided"}],
 *   "results":[{"name","shape","alias": operand index or -1,"conditional"}],
 *   "attributes":[{"name","type","default","choices","max_len"}],
 *   "score_mods":[{"name","text","scalars":[..],"tensors":[{"name","dims":"hq"}]}] (only of ops
 *    that take them: what score_scalars and score_tensor0, 1 hold, in order),
 *   "operands_with_ellipsis":[bool..],"results_with_ellipsis":[bool..],
 *   "tolerances":[{"result","dtype","ulps","relative"}],
 *   "problems":[{"text","operands":[{"present","dtype","dims"}],"attributes":{}}],
 *   "variants":[{"id","target","template","provider","rank","ran_on":[..],"registers","blob",
 *    "types":{},"tunables":{}}]}],
 *  "blobs":[{"sha256","format","offset","stored_bytes","bytes","base":index or -1}]}
 * With op != NULL only that op's entry is in "ops". with_variants = 0 leaves "variants" and "blobs"
 * out. */
KB_EXPORT kb_error* kb_bundle_describe(const kb_bundle* bundle, const char* op,
                                       int32_t with_variants, char** json);

/* What a framework needs when it traces a call. JSON: {"interface":"16 hex",
 *  "results":[{"present","dtype","dims"}],"workspace_bytes": for the device kind, maximum over the
 *  bundle's reachable targets,"empty": true when nothing need be computed} */
KB_EXPORT kb_error* kb_infer(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                             int32_t kind, char** json);

/* JSON: {"problem","target","chosen": id or null,"choice","workspace_bytes",
 *  "tuned": null, or of the tuned problem that decided {"problem","device","winner","default",
 *    "verdict","reason","times":[{"id","us":[q25,median,q75],"versus_default":[ratio,band],
 *    "dropped","failed"}]},
 *  "candidates":[{"id","legal","reason"}]}.
 * target NULL: the current device of `kind`. */
KB_EXPORT kb_error* kb_explain(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                               int32_t kind, const char* target, char** json);

/* ---- policy and statistics, process-wide ---- */
KB_EXPORT kb_error* kb_policy_force(const kb_bundle* bundle, const char* variant_id);
KB_EXPORT kb_error* kb_policy_deny(const kb_bundle* bundle, const char* variant_id);
KB_EXPORT void kb_policy_clear(void);
KB_EXPORT void kb_policy_strict(int32_t strict);
KB_EXPORT void kb_policy_allow_portable(int32_t allow);
/* JSON: {"plans_made","plans_shared","objects_loaded",
 *  "chosen":[{"bundle","op","problem","variant","choice","device","reason","count"}]} */
KB_EXPORT kb_error* kb_stats(char** json);

/* ---- plans ---- */
/* CUDA: the calling thread's current context. workspace_limit -1: no limit. */
KB_EXPORT kb_error* kb_plan_make(const kb_bundle* bundle, const char* op,
                                 const kb_problem_spec* spec, int32_t kind, int64_t workspace_limit,
                                 kb_plan** out);
/* The same for a caller who promises that every operand's and result's address will be a multiple
 * of `alignment` bytes, a power of two: code for less aligned addresses is not loaded, and a launch
 * that breaks the promise fails with code 3. kb_plan_make promises 1: element alignment only. */
KB_EXPORT kb_error* kb_plan_make_aligned(const kb_bundle* bundle, const char* op,
                                         const kb_problem_spec* spec, int32_t kind,
                                         int64_t workspace_limit, int64_t alignment, kb_plan** out);
KB_EXPORT int64_t kb_plan_workspace_bytes(const kb_plan* plan);
KB_EXPORT kb_error* kb_plan_variant(const kb_plan* plan, char** id);
/* stream: CUstream for CUDA; NULL for the host (runs on `threads` threads made for the call,
 * 1 = inline). operands, results: addresses in the op's order, NULL where absent. */
KB_EXPORT kb_error* kb_plan_launch(const kb_plan* plan, void* stream, void* const* operands,
                                   void* const* results, void* workspace, int32_t threads);
KB_EXPORT void kb_plan_release(kb_plan* plan);

/* ---- XLA FFI ----
 * Raw handlers for jax.ffi.pycapsule; name "kbundle.call.v1".
 *   platform "cpu":  instantiate, execute
 *   platform "CUDA": instantiate, prepare, initialize, execute (command-buffer trait)
 * Call attributes, all required:
 *   "bundle", "op" (strings), "interface" (string, 16 hex digits),
 *   "present" (int64: bit i set when operand i of the op is passed), "results" (likewise),
 *   "workspace_bytes" (int64; when > 0 the last FFI result is u8[workspace_bytes]; the handler
 *   aligns it to 256 bytes, so ask for 256 more than kb_infer says),
 * and the op's attributes under the prefix "a." ("a.scale"): bool, int64, double, string (enum,
 * dtype), arrays of int64 or double. FFI arguments are the present operands in order, FFI results
 * the present results in order, then the workspace. */
struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;
KB_EXPORT struct XLA_FFI_Error* kb_xla_instantiate_host(struct XLA_FFI_CallFrame* frame);
KB_EXPORT struct XLA_FFI_Error* kb_xla_execute_host(struct XLA_FFI_CallFrame* frame);
KB_EXPORT struct XLA_FFI_Error* kb_xla_instantiate_cuda(struct XLA_FFI_CallFrame* frame);
KB_EXPORT struct XLA_FFI_Error* kb_xla_prepare_cuda(struct XLA_FFI_CallFrame* frame);
KB_EXPORT struct XLA_FFI_Error* kb_xla_initialize_cuda(struct XLA_FFI_CallFrame* frame);
KB_EXPORT struct XLA_FFI_Error* kb_xla_execute_cuda(struct XLA_FFI_CallFrame* frame);

#ifdef __cplusplus
}
#endif
#endif /* KBUNDLE_C_H_ */
