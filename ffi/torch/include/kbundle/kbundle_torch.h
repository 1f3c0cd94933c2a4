/* What kbundle.torch asks of libkbundle.so, beside kbundle_c.h: eager calls of PyTorch by boxed
 * kernels. For the Python package that came with the library, and no promise to anyone else.
 *
 * Conventions of errors, ownership and threads are those of kbundle_c.h.
 *
 * A site is what calls of one op have in common: bundle, attributes, which operands are given. It
 * knows plans by the problem: device, dtypes and shapes. Operators are of the form
 *   kbundle_eager::name.overload(int site, Tensor .., Tensor) -> Tensor, or (Tensor .., Tensor)
 * with the given operands in the op's order, and a result for each of the op's. A result that the
 * call does not have is undefined (None in Python); where all are, the call was not made: the
 * caller makes it another way, and teaches the site by kb_torch_learn.
 *
 * Operators that ops are, kbundle::name.overload(operands, *, attributes, str bundle), have kernels
 * too: each is a site, whose problems are told apart by attributes and the bundle's name as well. A
 * call that it does not know, or through which gradients are to flow, it hands to
 * kbundle_long::name.overload of the same form, in Python, which teaches the site in turn. */
#ifndef KBUNDLE_TORCH_H_
#define KBUNDLE_TORCH_H_

#include "kbundle/kbundle_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Finds PyTorch's functions among the libraries of the process. Code 12 names one that is missing.
 * cuda: whether those for CUDA are there too. */
KB_EXPORT kb_error* kb_torch_load(int32_t* cuda);
/* Gives an operator of the form above, which is defined, its kernel for CPU and, where cuda is not
 * 0, for CUDA. name: "name.overload". kb_torch_load goes before. */
KB_EXPORT kb_error* kb_torch_implement(const char* name, int32_t cuda);

/* Whether gradients are to flow back to a tensor, by its AtenTensorHandle: 1 or 0; -1: this PyTorch
 * does not say. For a try beforehand: no part of PyTorch's stable interface answers that. */
KB_EXPORT int32_t kb_torch_wants_gradient(void* tensor);

/* Gives the operators kbundle::name and kbundle_rules::name their kernel, for CPU and, where cuda
 * is not 0, for CUDA. name: "name.overload"; kinds: of each argument 0 tensor, 1 tensor that may be
 * left out, 2 number or truth value, 3 text, 4 list of numbers; operands first. site: for
 * kb_torch_learn, and for ever. Code 8: a process has no more such kernels. kb_torch_load goes
 * before. */
KB_EXPORT kb_error* kb_torch_implement_op(const char* name, const int32_t* kinds, size_t count,
                                          int32_t cuda, int64_t* site);
/* What the call that this thread has gone the long way for fails with: the results of
 * kbundle_long's operator are undefined then. */
KB_EXPORT void kb_torch_fail(const char* text);
/* All sites forget their plans, as when another bundle is opened, closed or used. */
KB_EXPORT void kb_torch_forget(void);

/* operand_count: of the op; given: the indexes of those that calls have, ascending. */
KB_EXPORT kb_error* kb_torch_site_make(int32_t operand_count, const int32_t* given,
                                       size_t given_count, int64_t* site);
/* Calls under way keep what they use. */
KB_EXPORT void kb_torch_site_release(int64_t site);

/* Teaches a site the plan of the call that this thread's last call of it did not know; code 9 where
 * there is none. generation: kb_policy_generation() before the plan was made. plan: a reference is
 * taken; NULL: nothing is to be computed, results are zeros. results: one for each of the op's,
 * dtypes as in kb_tensor, absent ones with present = 0; aliases: of each the index of the given
 * operand that it is written over, or -1. few: the work is too little for several threads.
 * environment: the value of $KBUNDLE_PATH that the plan is good for; NULL: any. Code 12 for a dtype
 * that this PyTorch does not have. */
KB_EXPORT kb_error* kb_torch_learn(int64_t site, uint64_t generation, const kb_plan* plan,
                                   const kb_tensor* results, const int32_t* aliases,
                                   size_t result_count, int32_t few, const char* environment);

/* Shortcuts: Python functions whose known calls are launched without their Python (ffi/torch's
 * shortcut.h). Pointers are of Python's objects. */
typedef struct kb_torch_layout {
  void *tensor_type, *parameter_type, *dtype_type;
  int64_t tensor_offset;        /* of the tensor in a Python object of either type, in bytes */
  int64_t keys_offset;          /* of its dispatch keys in what that points to */
  uint64_t cpu_keys, cuda_keys; /* all that a tensor may have which needs no dispatcher */
  void* differentiate;          /* (site, tensor, ..): results in a tuple, with gradients */
} kb_torch_layout;

/* The layout was tried on tensors before, and what it points to stays. Code 12: this PyTorch or
 * Python lacks something. kb_torch_load goes before, once for the process. */
KB_EXPORT kb_error* kb_torch_shortcut_enable(const kb_torch_layout* layout);
/* These three are called with the interpreter's lock, return a new reference, and NULL with an
 * exception set. states: functions without arguments, whose answers (numbers, texts, None) are part
 * of what calls have in common. */
KB_EXPORT void* kb_torch_shortcut_make(void* function, void* const* states, size_t state_count);
/* note(site, its number, $KBUNDLE_PATH or None, operands, results): a call of an op while a
 * function is learned; nothing at other times. */
KB_EXPORT void* kb_torch_shortcut_note(void);
/* run(number of a site, operands ..): what its operator gives, None where that is to be asked. */
KB_EXPORT void* kb_torch_shortcut_run(void);

#ifdef __cplusplus
}
#endif
#endif /* KBUNDLE_TORCH_H_ */
