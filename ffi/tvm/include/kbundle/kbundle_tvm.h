/* What kbundle.tvm_ffi asks of libkbundle.so, beside kbundle_c.h: ops as functions of tvm-ffi. For
 * the Python package that came with the library, and no promise to anyone else.
 *
 * A function takes tensors (a DLTensor, a tvm-ffi Tensor or None), operands first and then results,
 * which it writes; and behind them values of the attributes that were not said when it was made, in
 * the op's order, None or left out at the end where they are at their defaults. Conventions of
 * errors, ownership and threads are those of kbundle_c.h. */
#ifndef KBUNDLE_TVM_H_
#define KBUNDLE_TVM_H_

#include "kbundle/kbundle_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an op a function of the process's tvm-ffi and gives it the name there, in place of another
 * of that name. spec: its operands say which of the op's a call gives (present; the rest of each is
 * not used), its attributes are those of every call. The function keeps the bundle. Code 12:
 * tvm-ffi is not in the process, or lacks a function that the message names. */
KB_EXPORT kb_error* kb_tvm_register(const kb_bundle* bundle, const char* op,
                                    const kb_problem_spec* spec, const char* name);

#ifdef __cplusplus
}
#endif
#endif /* KBUNDLE_TVM_H_ */
