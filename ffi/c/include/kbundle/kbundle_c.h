/* The C ABI of libkbundle.so: open a bundle, ask for a plan, launch it on a stream or on the CPU.
 *
 * Errors. A function that can fail returns NULL for success or a kb_error, which the caller frees
 * with kb_error_free. Codes are the canonical ones (3 invalid argument, 5 not found, 8 out of
 * memory or over a limit, 9 wrong device or state, 15 damaged file, ...). Out parameters are set
 * only on success. Senseless arguments (NULL where something is needed, a plan of another device
 * kind, numbers out of range) are errors with code 3, never a crash; addresses that point nowhere
 * cannot be told. Memory that runs out is an error with code 8 that is not allocated. No exception
 * crosses this boundary.
 *
 * Ownership. kb_bundle and kb_plan are references: each is released once by who got it, in any
 * order; a plan keeps what it needs of its bundle. Arguments are read during the call and not kept.
 * Strings returned through char** are freed with kb_string_free.
 *
 * Memory. Of a device: none. What is large may come from the host's own allocator (kb_allocator).
 *
 * Threads. Every function may be called from any thread, several at a time, and one handle may be
 * used by several at once; only its release must come after their calls. A plan may be launched
 * from several threads at once, each with a workspace of its own. A process that is forked while
 * other threads of its parent are in these functions inherits their locks, as it does those of any
 * library: it must not call them before it executes a program.
 *
 * ABI version: kb_abi_version(); functions are only ever added, and structs stay as they are, but
 * for those that begin with their size, which may grow at the end. */
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
/* Opens (or shares) the file under a process-wide name, by which compiled programs refer to it;
 * name NULL: the one inside the file. Several files may have one name while no op is in two of
 * them, so that a name and an op are one bundle, whatever was opened first; code 6 names an op that
 * other content has there. The same content under its name again is the same bundle.
 *
 * Where PATH.parts beside the file says that it is the base of a library in several wheels, it is
 * opened with those parts that are installed beside it, as one bundle (kb_open_options.parts). Code
 * 9 names a part of another version, or a PATH.parts that makes no sense, code 5 a part that has
 * lost its file; both say what to install. */
KB_EXPORT kb_error* kb_bundle_open(const char* path, const char* name, kb_bundle** out);
/* The same of a file that is open already, alone, whatever is beside it: the descriptor stays the
 * caller's, who may close it. */
KB_EXPORT kb_error* kb_bundle_open_descriptor(int descriptor, const char* name, kb_bundle** out);
/* The same of `size` bytes in memory, which are copied: for a bundle inside another file. Code 3:
 * no memory has so many (a size of -1); code 15: the file that lies there has another size. */
KB_EXPORT kb_error* kb_bundle_open_memory(const void* bytes, uint64_t size, const char* name,
                                          kb_bundle** out);
/* As kb_bundle_open, but bundles of that name that share an op with the file lose it: programs that
 * are compiled from now on get the new one, others keep what they have. */
KB_EXPORT kb_error* kb_bundle_reload(const char* path, const char* name, kb_bundle** out);

/* Memory for a bundle, of a host that accounts for it or bounds it. It serves all that grows with
 * the file: the index, whole from the beginning to the end of the bundle's life (pages of it that
 * nobody needs are never touched); the file, if it was opened from memory; and code objects, as
 * stored and inflated, during the calls that load or verify them. The rest is on the C++ heap:
 * handles, plans (a few KB each), texts, statistics, locks, and the process's four decoders of
 * 95 KB. Code for a CPU is then mapped by the system's linker, code for a GPU is the driver's.
 *
 * Threads: both are called from any thread that calls this library or runs a program that does, at
 * once, while locks may be held: they must return, throw nothing, and call no function of this
 * header. Each block is released once, on any thread. The first block, taken during the open, is
 * held while the bundle lives, past kb_bundle_release, while plans, programs or its name hold it.
 * When nothing is held and no open is under way, no call comes any more, and `state` may go. */
typedef struct {
  /* `size` > 0 bytes at a multiple of `alignment`, a power of two (64 as of now). NULL, or less
   * aligned: the call that needed it fails with code 8, which says for what and how much; nothing
   * is leaked or half open, and the same call may succeed later. */
  void* (*allocate)(void* state, size_t size, size_t alignment);
  /* Gets what `allocate` returned, and was given. */
  void (*release)(void* state, void* memory, size_t size, size_t alignment);
  void* state;
} kb_allocator;

/* A part of a library that is not here. Where no part has code for a device, the error (code 5)
 * says how to get those that would. */
typedef struct {
  const char* target; /* "sm_80" */
  const char* how;    /* "pip install \"leafy[sm80]\"" */
} kb_absent_part;

typedef enum { KB_SOURCE_PATH = 0, KB_SOURCE_DESCRIPTOR = 1, KB_SOURCE_MEMORY = 2 } kb_source;
typedef struct {
  size_t size;    /* sizeof(kb_open_options) */
  int32_t source; /* kb_source: which of the next four is looked at */
  int32_t descriptor;
  const char* path;
  const void* bytes;
  uint64_t byte_count;
  const char* name;              /* NULL: the one inside the file */
  const kb_allocator* allocator; /* NULL: malloc. Copied, but for its state */
  int32_t reload;                /* not 0: as kb_bundle_reload */
  int32_t reserved;              /* 0 */
  /* Below: with KB_SOURCE_PATH alone. Further files of the library that `path` is a part of, in
   * place of those that are found beside it, each with the same ops for other targets: all are
   * opened as one kb_bundle, which answers by the part whose code fits a device best, and where
   * that has nothing for the problem, by the next. Code 3 names two files that have code for one
   * target, or different names or ops; code 9, when an op is first asked for, two that declare it
   * differently. */
  const char* const* parts;
  size_t part_count;
  const kb_absent_part* absent; /* that are not here */
  size_t absent_count;
  /* Where neither is given: further folders that packages are installed in, like Python's sys.path.
   * Parts that are not beside the base are looked for there, in this order. */
  const char* const* folders;
  size_t folder_count;
} kb_open_options;
/* The size of this struct before it had `parts`, which is taken too. */
#define KB_OPEN_OPTIONS_0_SIZE offsetof(kb_open_options, parts)
/* Every other way to open is one of these options. Where the same content is open under the name
 * already, it keeps the memory that it has, and `allocator` is used during the call alone. */
KB_EXPORT kb_error* kb_bundle_open_with(const kb_open_options* options, kb_bundle** out);

/* A reference to the bundle that is open under the name and has the op, as compiled programs find
 * theirs; op NULL: the only one of that name. Code 5 lists what is open. */
KB_EXPORT kb_error* kb_bundle_find(const char* name, const char* op, kb_bundle** out);
/* The same for all references to one open bundle, and for no other while one of them lives. */
KB_EXPORT const void* kb_bundle_identity(const kb_bundle* bundle);
/* Takes the bundle out of its name; code 5 when it is not there (any more). Plans and programs that
 * have it go on. Its descriptor and memory come back when all of them and all references are gone.
 * The reference is still to be released. */
KB_EXPORT kb_error* kb_bundle_close(const kb_bundle* bundle);
/* Gives back a reference; the bundle stays open under its name. */
KB_EXPORT void kb_bundle_release(kb_bundle* bundle);
/* Every byte of the file, and all that opening has put off (kb_bundle_describe). Code 15 says what
 * is damaged. */
KB_EXPORT kb_error* kb_bundle_verify(const kb_bundle* bundle);
/* JSON: {"name","path","content_id": 64 hex, SHA-256 of the outline,"file_bytes","provenance":{},
 *  "parts":[{"path","content_id","file_bytes","targets":[..]}] (the files; of a bundle itself),
 *  "absent":[{"target","how"}] (kb_absent_part),
 *  "targets":[..],"devices":[..],
 *  "ops":[{"name","summary","interface":"16 hex","vmap":"leading|loop|none","coordinates":[..],
 *   "types":[{"name","dtypes","attribute"}],
 *   "operands":[{"name","shape","optional","strided","ellipsis"}],
 *   "results":[{"name","shape","alias": operand index or -1,"conditional","ellipsis"}],
 *    ("ellipsis": {"name": "rows" of `rows..`,"axis": terms before it}, or null)
 *   "attributes":[{"name","type","default","choices","max_len"}],
 *   "expressions":[{"attribute","name": a choice of it,"text","scalars":[..],
 *    "tensors":[{"name","dims":"hq"}]}] (only of ops that have any: what a choice computes, and
 *    what the numbers and tensors that it is given are called, in order),
 *   "tolerances":[{"result","dtype","ulps","relative"}],
 *   "problems":[{"text","operands":[{"present","dtype","dims"}],"attributes":{}}],
 *   "variants":[{"id","target","template","provider","rank","ran_on":[..],"registers","blob",
 *    "types":{},"deterministic","batch_invariant": where it promises that ("true" or a condition)
 *    or null,"tunables":{}}]}],
 *  "blobs":[{"sha256","format","part": whose,"offset","stored_bytes","bytes","base":index or -1}]}
 * With op != NULL only that op's entry is in "ops". whole = 0 leaves "problems", "variants"
 * and "blobs" out, which are nearly all of the text; whole < 0 also all of an op but its "name".
 * Code 15 where an op that is described is damaged: opening a bundle checks what its ops share, and
 * what belongs to one op alone is checked when the op is first named in any call. whole > 0, and
 * op NULL with whole = 0, check all of them. */
KB_EXPORT kb_error* kb_bundle_describe(const kb_bundle* bundle, const char* op, int32_t whole,
                                       char** json);

/* What a framework needs when it traces a call. JSON: {"interface":"16 hex",
 *  "results":[{"present","dtype","dims"}],"workspace_bytes": the most that a variant takes which
 *  may be legal on a device of this kind,"empty": true when nothing need be computed,
 *  "cuts":[{"operands":[..],"results":[..],"batch","sums":[..],"once":[..]}]}
 * A cut is a way to compute the problem in equal parts, those that go first in front: which dim of
 * each operand and result is divided (-1: none, every part has all of it), which results are the
 * sum of the parts', and which operands all parts but one get as zeros; "batch": along it lie the
 * items of a batch. */
KB_EXPORT kb_error* kb_infer(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                             int32_t kind, char** json);

/* ---- the same without JSON: here what plans need, the rest in kbundle_describe.h ---- */
enum { KB_MOST_RANK = 16 };
typedef struct {
  int32_t present; /* 0: these operands and attributes have no such result; the rest is 0 */
  int32_t dtype;
  int32_t rank;
  int64_t dims[KB_MOST_RANK];
} kb_result;
/* What the op's results are, in its order: *count of them, of which the first `capacity` are
 * written. results may be NULL where capacity is 0. Needs no device and loads nothing. */
KB_EXPORT kb_error* kb_results(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                               kb_result* results, size_t capacity, size_t* count);
/* Bytes of workspace that serve whatever may be chosen on a device of this kind: kb_infer's
 * "workspace_bytes". Needs no device and loads nothing. */
KB_EXPORT kb_error* kb_workspace_bytes(const kb_bundle* bundle, const char* op,
                                       const kb_problem_spec* spec, int32_t kind, int64_t* bytes);
/* The variant that a plan would be made of, unless a library of the process refuses it: what
 * kb_explain calls "chosen". target NULL: the current device of `kind`; modes: bits of kb_mode.
 * Loads nothing. */
KB_EXPORT kb_error* kb_select(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                              int32_t kind, const char* target, uint64_t modes, char** variant_id);

/* JSON: {"problem","target","chosen": id or null,"choice","workspace_bytes","part": path of the
 *    file that serves, or null,"needs": which library a process must bring for it, or null,
 *  "tuned": null, or of the tuned problem that decided {"problem","device","winner","default",
 *    "verdict","reason","times":[{"id","us":[q25,median,q75],"versus_default":[ratio,band],
 *    "dropped","failed"}]},
 *  "absent":[{"target","how"}] (parts that are not here, and would go first),
 *  "candidates":[{"id","legal","reason"}],
 *  "launch": null, or what the chosen variant does, in numbers: {"alignment","sm_count": assumed
 *    where only a target is named,"workspace":[{"region","offset","bytes"}],"steps":[{"step": from
 *    1,"kind": "kernel","memset","copy","execution plan" or "product", then
 *    of a kernel "kernel","blob","args", with "grid","block","cluster","shared","programmatic" on a
 *      GPU, "range","grain" on the CPU; of an execution plan "kernel","blob","workspace","bytes",
 *      "args"; of a memset "target","value","bytes"; of a copy "target","source","bytes"; of a
 *      product "blob","mnk","batch","transpose_a","transpose_b","a","b","c","d","aux","bias" (those
 *      present: {"at","dtype","leading","batch_stride"}),"epilogue","tf32","alpha","beta",
 *      "workspace","bytes"}]}, steps that do nothing left out; or with "error" why it cannot run.
 *    An argument is {"text"} and "at": a pointer, "ctype" and "value", or "tensor_map", "dtype" and
 *    what cuTensorMapEncodeTiled takes, or "bytes" and "fields": a struct by value, whose fields
 *    are arguments with "offset" in bytes. A pointer is null, {"operand" or "result","offset":
 *    bytes} or {"workspace": offset}.}.
 * target NULL: the current device of `kind`. */
KB_EXPORT kb_error* kb_explain(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                               int32_t kind, const char* target, char** json);

/* The same for a caller who asks for modes, bits of kb_mode. */
KB_EXPORT kb_error* kb_explain_modes(const kb_bundle* bundle, const char* op,
                                     const kb_problem_spec* spec, int32_t kind, const char* target,
                                     uint64_t modes, char** json);

/* ---- policy and statistics, process-wide ---- */
/* By id, which may leave out "@target", or the point in brackets too, and then means more variants.
 * Of wishes that mean a variant the latest decides, however their ids are spelled. */
KB_EXPORT kb_error* kb_policy_force(const kb_bundle* bundle, const char* variant_id);
KB_EXPORT kb_error* kb_policy_deny(const kb_bundle* bundle, const char* variant_id);
KB_EXPORT void kb_policy_clear(void);
/* Grows with every change of the policy: plans that were made before it may be of variants that
 * would not be chosen now. */
KB_EXPORT uint64_t kb_policy_generation(void);
KB_EXPORT void kb_policy_strict(int32_t strict);
KB_EXPORT void kb_policy_allow_portable(int32_t allow);
/* JSON: {"plans_made","plans_shared","objects_loaded",
 *  "chosen":[{"bundle": the name inside the file,"content_id","op","problem","variant","choice",
 *   "device","reason","count"}]} */
KB_EXPORT kb_error* kb_stats(char** json);

/* ---- log ---- */
/* KB_LOG_WARNING: a better variant was passed over (a library is missing or refused it, a workspace
 * was too small), or code for any GPU was taken. KB_LOG_INFO: any other plan that was made. */
typedef enum { KB_LOG_INFO = 0, KB_LOG_WARNING = 1 } kb_log_severity;
/* Gives every plan that is made from now on, in this process, to `log`: what for, the variant, why.
 * It is called on the thread that makes the plan, maybe several at a time, and must not call this
 * function; the message lives for the call. log NULL: nobody; on return the one before is in no
 * call any more. Of its own the library prints nothing. */
KB_EXPORT void kb_log_to(void (*log)(void* state, int32_t severity, const char* message),
                         void* state);

/* ---- plans ---- */
/* CUDA: the calling thread's current context. workspace_limit -1: no limit. */
KB_EXPORT kb_error* kb_plan_make(const kb_bundle* bundle, const char* op,
                                 const kb_problem_spec* spec, int32_t kind, int64_t workspace_limit,
                                 kb_plan** out);
/* The same for a caller who promises that every operand's and result's address will be a multiple
 * of `alignment` bytes, a power of two: code for less aligned addresses is not loaded, and a launch
 * that breaks the promise, however much it is, fails with code 3. kb_plan_make promises 1: element
 * alignment only. */
KB_EXPORT kb_error* kb_plan_make_aligned(const kb_bundle* bundle, const char* op,
                                         const kb_problem_spec* spec, int32_t kind,
                                         int64_t workspace_limit, int64_t alignment, kb_plan** out);
/* What a caller may ask of results beyond that they are right. Of the same operands at addresses of
 * one alignment class (multiples of 16, or not):
 * KB_DETERMINISTIC: every launch gives the same bits, on one GPU, or on CPUs of one target with any
 *   number of threads;
 * KB_BATCH_INVARIANT: what an item of a batch gets has the same bits, however many items are beside
 *   it and whatever they are. Which dims hold items is the op's (kb_infer, "batch"); results that
 *   are sums over them are no item's. */
typedef enum { KB_DETERMINISTIC = 1, KB_BATCH_INVARIANT = 2 } kb_mode;
/* As kb_plan_make_aligned, of variants that promise the modes, bits of kb_mode; code 5 says what
 * each legal variant promises where none promises all. KB_BATCH_INVARIANT: the variant does not
 * depend on how many items there are, so too small a workspace leads to no other one. */
KB_EXPORT kb_error* kb_plan_make_modes(const kb_bundle* bundle, const char* op,
                                       const kb_problem_spec* spec, int32_t kind,
                                       int64_t workspace_limit, int64_t alignment, uint64_t modes,
                                       kb_plan** out);
KB_EXPORT int64_t kb_plan_workspace_bytes(const kb_plan* plan);
KB_EXPORT kb_error* kb_plan_variant(const kb_plan* plan, char** id);

/* Launches. operands, results: arrays of addresses in the op's order, as many as the op has, NULL
 * where absent; the array itself may be NULL only if the op has none. In-out results stand at their
 * operand's address. workspace: kb_plan_workspace_bytes(plan) bytes at a multiple of 256 that no
 * other launch uses meanwhile; NULL if that is 0. */
struct CUstream_st; /* a CUstream (or cudaStream_t) is a pointer to it; NULL: the default stream */
/* Enqueues a plan of KB_DEVICE_CUDA; never waits. The context that the plan was made in must be
 * current, and the stream of it: else code 9, which names both devices. Legal as the first call of
 * a stream capture. */
KB_EXPORT kb_error* kb_plan_launch_cuda(const kb_plan* plan, struct CUstream_st* stream,
                                        void* const* operands, void* const* results,
                                        void* workspace);

/* A thread pool: calls body(context, begin, end) over all of [0, count), in parts of at least
 * `grain` (but for the last), on any threads, and returns when all is done. */
typedef struct {
  void (*parallel_for)(void* state, int64_t count, int64_t grain,
                       void (*body)(void* context, int64_t begin, int64_t end), void* context);
  void* state;
} kb_host_executor;
/* Runs a plan of KB_DEVICE_HOST to its end, on an executor that is borrowed for the call; NULL: on
 * the calling thread. */
KB_EXPORT kb_error* kb_plan_launch_host(const kb_plan* plan, const kb_host_executor* executor,
                                        void* const* operands, void* const* results,
                                        void* workspace);
/* The same on `threads` threads, 1 to 1024, made for the call; the calling one is one of them. */
KB_EXPORT kb_error* kb_plan_launch_threads(const kb_plan* plan, int32_t threads,
                                           void* const* operands, void* const* results,
                                           void* workspace);
KB_EXPORT void kb_plan_release(kb_plan* plan);

/* ---- XLA FFI ----
 * Raw handlers for jax.ffi.pycapsule; name "kbundle.call.v1".
 *   platform "cpu":  instantiate, execute
 *   platform "CUDA": instantiate, prepare, initialize, execute (command-buffer trait)
 * Call attributes, all required but modes:
 *   "bundle", "op" (strings), "interface" (string, 16 hex digits),
 *   "present" (int64: bit i set when operand i of the op is passed), "results" (likewise),
 *   "workspace_bytes" (int64; when > 0 the last FFI result is u8[workspace_bytes]; the handler
 *   aligns it to 256 bytes, so ask for 256 more than kb_infer says),
 *   "modes" (int64: bits of kb_mode),
 * and the op's attributes under the prefix "a." ("a.scale"): bool, int64, double, string (enum,
 * dtype), arrays of int64 or double. FFI arguments are the present operands in order, FFI results
 * the present results in order, then the workspace. */
struct XLA_FFI_Api;
struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;
/* Registers the handlers of a platform, "cpu" or "CUDA", with the XLA runtime that `api` is of: for
 * hosts without Python, for each runtime and platform, before a program that calls kbundle is
 * compiled or loaded there. Again is fine; what XLA refuses, such as handlers of another copy of
 * this library, is code 13 with its words. */
KB_EXPORT kb_error* kb_xla_register(const struct XLA_FFI_Api* api, const char* platform);
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
