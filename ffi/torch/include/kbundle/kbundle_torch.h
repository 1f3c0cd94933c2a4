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
 * caller makes it another way, and teaches the site by kb_torch_learn. */
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

/* operand_count: of the op; given: the indexes of those that calls have, ascending. */
KB_EXPORT kb_error* kb_torch_site_make(int32_t operand_count, const int32_t* given,
                                       size_t given_count, int64_t* site);
/* Calls under way keep what they use. */
KB_EXPORT void kb_torch_site_release(int64_t site);

/* Teaches a site the plan of the call that this thread's last call of it did not know; code 9 where
 * there is none. generation: kb_policy_generation() before the plan was made. plan: a reference is
 * taken; NULL: nothing is to be computed, results are zeros. results: one for each of the op's,
 * dtypes as in kb_tensor, absent ones with present = 0; aliases: of each the index of the given
 * operand that it is written over, or -1. few: the work is too little for several threads. Code 12
 * for a dtype that this PyTorch does not have. */
KB_EXPORT kb_error* kb_torch_learn(int64_t site, uint64_t generation, const kb_plan* plan,
                                   const kb_tensor* results, const int32_t* aliases,
                                   size_t result_count, int32_t few);

#ifdef __cplusplus
}
#endif
#endif /* KBUNDLE_TORCH_H_ */
