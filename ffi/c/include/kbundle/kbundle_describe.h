/* What kbundle_c.h tells in JSON, as plain structs: what a bundle holds, what a problem gets, why a
 * variant is chosen, what was chosen so far. (Of an explanation all but its "launch": the numbers
 * of each step are for people to read, and for tools that have JSON.)
 *
 * Each *_make function gives one struct that holds all the others, texts and arrays too; it is
 * freed as a whole by the *_free function of its name, which takes NULL. It owns itself: the bundle
 * may be released before it. Nothing of it changes, so any thread may read it. Texts are UTF-8 and
 * never NULL where nothing is said of NULL; an array of no elements may be NULL.
 *
 * Structs grow at the end only, and each begins with its size in the library that made it: arrays
 * are of pointers, so that a library newer than this header may be read by it. Of a library that
 * may be older than this header, ask KB_HAS before reading a field that came after version 0.1. */
#ifndef KBUNDLE_DESCRIBE_C_H_
#define KBUNDLE_DESCRIBE_C_H_

#include "kbundle/kbundle_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the library that made *pointer, a `type`, knew the field. */
#define KB_HAS(type, pointer, field) (offsetof(type, field) < (pointer)->size)

/* ---- a bundle ---- */
typedef struct {
  size_t size;
  const char* name;
  const int32_t* dtypes; /* it may be one of these: numbers of kbundle/dtype.h */
  size_t dtype_count;
  const char* attribute; /* that says which; NULL: operands do */
} kb_type_info;

typedef struct {
  size_t size;
  const char* name;      /* "x" */
  const char* shape;     /* "T[rows.., K]" */
  int32_t optional;      /* operands: it may be absent */
  int32_t strided;       /* operands: it may have strides */
  int32_t alias;         /* results: index of the operand that it is written over, or -1 */
  int32_t conditional;   /* results: not of every problem */
  const char* ellipsis;  /* "rows": these dims may be any number of dims; NULL: there are none */
  int32_t ellipsis_axis; /* how many dims stand before them */
} kb_tensor_info;

typedef enum {
  KB_TYPE_BOOL = 1,
  KB_TYPE_INT = 2,
  KB_TYPE_FLOAT = 3,
  KB_TYPE_DTYPE = 4,
  KB_TYPE_ENUM = 5,
  KB_TYPE_INT_ARRAY = 6,
  KB_TYPE_FLOAT_ARRAY = 7
} kb_attribute_type;

typedef struct {
  size_t size;
  const char* name;
  int32_t type;               /* kb_attribute_type */
  const kb_attribute* value;  /* its default, as a request would give it; NULL: required */
  const char* const* choices; /* of an enum */
  size_t choice_count;
  uint32_t most_elements; /* of an array */
} kb_attribute_info;

/* What a choice of an enum attribute computes, in the op's own words, and the names of the numbers
 * and tensors that it is given, in order; of a tensor the letters of its dims, "hq". */
typedef struct {
  size_t size;
  const char *attribute, *name, *text;
  const char* const* scalars;
  size_t scalar_count;
  const char* const* tensors;
  const char* const* tensor_dims; /* as many as tensors */
  size_t tensor_count;
} kb_expression_info;

typedef struct {
  size_t size;
  uint32_t result;
  int32_t dtype; /* 0: any */
  double ulps, relative;
} kb_tolerance_info;

/* A problem that the bundle was built for; a request for it is kb_problem_spec. */
typedef struct {
  size_t size;
  const char* text;
  kb_problem_spec spec;
} kb_problem_info;

/* A step of a variant. */
typedef struct {
  size_t size;
  const char* symbol; /* its entry point; NULL: a memset or a copy, and all below is 0 */
  int64_t blob;       /* kb_bundle_info.blobs that it lies in; -1: none */
  uint32_t registers, spill_bytes, static_shared;
  uint32_t dynamic_shared, threads; /* 0: what a launch says */
} kb_kernel_info;

typedef struct {
  size_t size;
  const char* id; /* as kb_policy_force takes it, with its "@target" */
  const char* target;
  const char* name; /* of the manifest's [[op.X.variant]] */
  const char* provider;
  uint32_t rank;             /* place in the manifest's order */
  const char* const* ran_on; /* devices on which conformance has run all its code */
  size_t ran_on_count;
  const kb_kernel_info* const* kernels;
  size_t kernel_count;
  const int32_t* types; /* a dtype for each of the op's types, in order */
  size_t type_count;
  const char* deterministic; /* where it promises that mode: "true" or a condition. NULL: nowhere */
  const char* batch_invariant; /* likewise */
  const char* const* tunables;
  const int64_t* tunable_values; /* as many */
  size_t tunable_count;
} kb_variant_info;

typedef enum { KB_VMAP_LOOP = 0, KB_VMAP_LEADING = 1, KB_VMAP_NONE = 2 } kb_vmap_rule;

typedef struct {
  size_t size;
  const char* name; /* "family.op" */
  /* Below: "", 0 and NULL with KB_DETAIL_NAMES. */
  const char* summary;
  uint64_t interface_hash; /* equal hashes: called in the same way */
  int32_t vmap;            /* kb_vmap_rule */
  const kb_type_info* const* types;
  size_t type_count;
  const kb_tensor_info* const* operands;
  size_t operand_count;
  const kb_tensor_info* const* results;
  size_t result_count;
  const kb_attribute_info* const* attributes;
  size_t attribute_count;
  const kb_expression_info* const* expressions;
  size_t expression_count;
  const char* const* coordinates; /* what near problems are near in */
  size_t coordinate_count;
  const kb_tolerance_info* const* tolerances;
  size_t tolerance_count;
  /* Below: with KB_DETAIL_WHOLE alone. */
  const kb_problem_info* const* problems;
  size_t problem_count;
  const kb_variant_info* const* variants;
  size_t variant_count;
} kb_op_info;

typedef struct {
  size_t size;
  uint8_t sha256[32];            /* of the code, inflated */
  const char* format;            /* "cubin", "host object", .. */
  uint64_t offset, stored_bytes; /* in the file */
  uint64_t bytes;                /* inflated */
  int64_t base;                  /* the blob that it is stored as a difference to, or -1 */
  size_t part;                   /* kb_bundle_info.parts: the file that it lies in */
} kb_blob_info;

/* A file of a library. */
typedef struct {
  size_t size;
  const char* path;
  const char* content_id; /* 64 hex digits */
  uint64_t file_bytes;
  const char* const* targets;
  size_t target_count;
} kb_part_info;

/* A target of a library that is in no file here. */
typedef struct {
  size_t size;
  const char *target, *how; /* as of kb_absent_part */
} kb_absent_info;

typedef struct {
  size_t size;
  const char *name, *path;
  const char* content_id; /* 64 hex digits: equal ids, equal content */
  uint64_t file_bytes;    /* of all parts */
  const char* const* provenance_keys;
  const char* const* provenance_values; /* as many */
  size_t provenance_count;
  const char* const* targets;
  size_t target_count;
  const char* const* devices;
  size_t device_count;
  const kb_op_info* const* ops;
  size_t op_count;
  const kb_blob_info* const* blobs; /* with KB_DETAIL_WHOLE alone */
  size_t blob_count;
  const kb_part_info* const* parts; /* of a bundle one: itself */
  size_t part_count;
  const kb_absent_info* const* absent; /* parts that are not here */
  size_t absent_count;
} kb_bundle_info;

/* The numbers that kb_bundle_describe takes. */
typedef enum { KB_DETAIL_NAMES = -1, KB_DETAIL_INTERFACE = 0, KB_DETAIL_WHOLE = 1 } kb_detail;

/* op NULL: every op, else only that one (code 5 names the nearest). Code 15: as of
 * kb_bundle_describe. */
KB_EXPORT kb_error* kb_bundle_info_make(const kb_bundle* bundle, const char* op, int32_t detail,
                                        const kb_bundle_info** out);
KB_EXPORT void kb_bundle_info_free(const kb_bundle_info* info);

/* ---- what a problem gets ---- */
/* A way to compute the problem in equal parts. A dim of -1: every part has all of that tensor. */
typedef struct {
  size_t size;
  const int32_t* operand_dims; /* for each operand of the op the dim that is divided */
  size_t operand_count;
  const int32_t* result_dims;
  size_t result_count;
  const int32_t* sums; /* indices of results that are the sum of the parts' */
  size_t sum_count;
  const int32_t* once; /* indices of operands that all parts but one get as zeros */
  size_t once_count;
  int32_t batch; /* along it lie the items of a batch */
} kb_cut;

typedef struct {
  size_t size;
  uint64_t interface_hash;
  const kb_result* results; /* as kb_results gives them */
  size_t result_count;
  int64_t workspace_bytes;   /* that serve whatever may be chosen on a device of this kind */
  int32_t empty;             /* nothing need be computed */
  const kb_cut* const* cuts; /* those that go first in front */
  size_t cut_count;
} kb_inference;

KB_EXPORT kb_error* kb_inference_make(const kb_bundle* bundle, const char* op,
                                      const kb_problem_spec* spec, int32_t kind,
                                      const kb_inference** out);
KB_EXPORT void kb_inference_free(const kb_inference* inference);

/* ---- why a variant is chosen ---- */
typedef struct {
  size_t size;
  const char* id;
  double low_us, median_us, high_us; /* quartiles; 0 where it failed */
  double ratio, band;                /* its time over the default's, and how far that may be off */
  int32_t dropped;                   /* measured until it was clearly worse */
  int32_t failed;
} kb_tuned_time;

/* A tuned problem. */
typedef struct {
  size_t size;
  const char *problem, *device;
  const char *winner, *base; /* ids; base: what would be taken without tuning */
  const char *verdict, *reason;
  const kb_tuned_time* const* times;
  size_t time_count;
} kb_tuned;

typedef struct {
  size_t size;
  const char* id;
  int32_t legal;
  const char* reason; /* why it is legal or not, chosen or not */
} kb_candidate;

typedef enum {
  KB_CHOICE_NONE = 0,
  KB_CHOICE_EXACT = 1,   /* this problem was tuned */
  KB_CHOICE_NEAREST = 2, /* a near one was */
  KB_CHOICE_MANIFEST_ORDER = 3,
  KB_CHOICE_PORTABLE = 4, /* code for any GPU */
  KB_CHOICE_FORCED = 5,   /* kb_policy_force */
  KB_CHOICE_HEURISTIC = 6 /* a library is asked when the plan is made */
} kb_choice;

typedef struct {
  size_t size;
  const char *problem, *target;
  const char* chosen;      /* id; NULL: no variant can be launched, which is no error here */
  const char* error;       /* why none; NULL where one is chosen */
  int32_t choice;          /* kb_choice */
  int64_t workspace_bytes; /* of the chosen one; -1: not known */
  const char* needs;       /* a library that the process must bring; NULL: none */
  const kb_tuned* tuned;   /* the tuned problem that decided; NULL: none did */
  const kb_candidate* const* candidates; /* of every target of this device kind */
  size_t candidate_count;
  const char* part;                    /* path of the file that serves; NULL where none is chosen */
  const kb_absent_info* const* absent; /* parts that are not here, and would go first */
  size_t absent_count;
} kb_explanation;

/* Arguments as of kb_select. Loads nothing. */
KB_EXPORT kb_error* kb_explanation_make(const kb_bundle* bundle, const char* op,
                                        const kb_problem_spec* spec, int32_t kind,
                                        const char* target, uint64_t modes,
                                        const kb_explanation** out);
KB_EXPORT void kb_explanation_free(const kb_explanation* explanation);

/* ---- what was chosen so far ---- */
typedef struct {
  size_t size;
  const char *bundle, *content_id; /* the name inside the file */
  const char *op, *problem, *variant;
  const char* choice; /* "exact", "nearest", "manifest order", .. */
  const char *device, *reason;
  uint64_t count;
} kb_chosen;

/* Of this process. Past 4096 problems of one content the further ones are counted together, by
 * variant, as the problem "(further problems)". */
typedef struct {
  size_t size;
  uint64_t plans_made, plans_shared, objects_loaded;
  const kb_chosen* const* chosen;
  size_t chosen_count;
} kb_statistics;

KB_EXPORT kb_error* kb_statistics_make(const kb_statistics** out);
KB_EXPORT void kb_statistics_free(const kb_statistics* statistics);

#ifdef __cplusplus
}
#endif
#endif /* KBUNDLE_DESCRIBE_C_H_ */
