// Data alone. A cause is said as what the person who meets it did or has; a cure is what to type or
// to change.
#include "builder/usage/error_table.h"

namespace kbundle::builder {
namespace {

constexpr ErrorCause kCancelled[] = {
    {"Ctrl-C, or SIGTERM from a scheduler, while a build or a tune was running",
     "Start it again: what was compiled is in the cache, and `kbundle tune --resume` and "
     "`kbundle specialize` go on where they ended."},
};
constexpr ErrorCause kInvalidArgument[] = {
    {"A call's dtype, shape or attribute does not fit the op's interface; the message names the "
     "operand, what it is and what is allowed",
     "`kbundle inspect FILE --op OP` prints the signature; convert or reshape what you pass."},
    {"Dims that must be equal are not, or sizes overflow 64 bits",
     "The message says which symbol has which two values: compare the shapes."},
    {"A manifest has an unknown key, a wrong type or an expression that does not parse",
     "The caret is at the place; `kbundle schema` gives editors the keys."},
    {"An attribute is a traced value of JAX, or a tensor",
     "Attributes are part of the compiled program: pass Python values (`static_argnames`)."},
    {"An operand's address breaks the alignment that `kb_plan_make_aligned` was promised",
     "Make the plan with the alignment that holds, or by `kb_plan_make`."},
};
constexpr ErrorCause kDeadlineExceeded[] = {
    {"A compiler or a planner did not answer within its limit, often on a loaded machine",
     "Run fewer at a time (`-j 1`), or raise `--compile-limit` of `kbundle tune`."},
    {"Another build holds the lock of a code object, and does not end",
     "See what that process does; end it, and build again."},
};
constexpr ErrorCause kNotFound[] = {
    {"The bundle has no op, bundle or file of that name",
     "The message names the nearest; `python -m kbundle` prints every place that is looked in and "
     "what it serves."},
    {"No variant is legal for this problem on this device; each one's reason follows",
     "`kbundle explain FILE OP --operand .. --target ..` prints all; build for the missing target, "
     "or reshape the problem."},
    {"No part of a library that comes in several wheels has code for this device",
     "The message says what there is and what to install; `kbundle doctor` says which part serves "
     "which device."},
    {"`No FFI handler registered for kbundle.call.v1`: an exported program is called in a process "
     "that has not imported kbundle",
     "Import `kbundle.jax` before it is called."},
    {"A compiled or exported program names a bundle that is not open in this process",
     "Import `kbundle.jax` (or `kbundle.torch`) and open the bundle under that name first."},
    {"A closed bundle is asked for by name", "Open the file again."},
};
constexpr ErrorCause kAlreadyExists[] = {
    {"Two bundles of one name have an op in common, with different content",
     "Build one with `--name`, or open it under a name of its own; `kbundle.open(path, "
     "reload=True)` puts the new one in the old one's place."},
    {"Two installed packages bring a function of the same name", "Take one of them away."},
    {"An output file is there already and is not of that kind", "`--force`, or another name."},
};
constexpr ErrorCause kPermissionDenied[] = {
    {"Strict mode: all that is left is portable, or was never run by conformance",
     "`kbundle test` on that device and build again; or leave strict mode."},
    {"Every legal variant is denied by policy", "`kbundle.clear_policy()`."},
    {"The file cannot be read by this user", "Correct its mode or owner."},
};
constexpr ErrorCause kResourceExhausted[] = {
    {"Memory of the device or the host ran out", "Make room; the message says for how many bytes."},
    {"The workspace given is smaller than the smallest legal variant needs",
     "Ask `kb_infer` or `kb_plan_workspace_bytes`; after a rebuild trace the program again."},
    {"The file, a manifest or a request is over a limit of the format",
     "The message names limit and value; FORMAT.md lists them all."},
    {"The disk is full, or a limit on file sizes is set", "Make room, then run it again."},
};
constexpr ErrorCause kFailedPrecondition[] = {
    {"The bundle is for another device: its targets and the device's are in the message",
     "`kbundle build --target ..` for that device, or `portable = true` on a variant."},
    {"A plan was made by another version of cuDNN or cuBLAS than this process has",
     "Install the version that is named, or build with the one that is there."},
    {"A plan is launched where another CUDA context is current, or after a reset",
     "Make its context current (`cuCtxSetCurrent`), or make the plan again."},
    {"A plan is launched on a stream of another device or context: the message names both",
     "Give a stream of the plan's context, or make a plan while the stream's is current."},
    {"No CUDA context is current on this thread",
     "Call the CUDA runtime once on it, or `cuCtxSetCurrent`."},
    {"A child that was forked from a process that had used JAX compiles a call",
     "Start workers by `spawn` or `forkserver`."},
    {"The forced variant is not legal for this problem", "Force another, or clear the policy."},
    {"A bundle's entry point raises, or gives no path", "Install that package again."},
    {"Parts of one library are of two versions, or declare an op differently",
     "The message names both: install them in one version, as the extra of the base does."},
};
constexpr ErrorCause kOutOfRange[] = {
    {"An expression of the manifest overflows, divides by zero or is negative for this problem",
     "Correct the expression, or keep the problem from the variant with `when`."},
};
constexpr ErrorCause kUnimplemented[] = {
    {"The file needs a newer loader: its format or a feature bit is unknown to this one",
     "Upgrade kbundle; which loader opens which file is in INSTALL.md."},
    {"The wrapper's arguments ask for what no kernel does",
     "The message says what; `fallback=\"jax\"` computes it by `jax.nn`, where there is one."},
    {"An op is differentiated that has no derivative",
     "Use the family's function instead of `call`, or say the derivative (`jax.custom_vjp`, "
     "`kbundle.torch.Derivative`)."},
};
constexpr ErrorCause kInternal[] = {
    {"A fault of kbundle's own, or an answer of a driver or compiler that nobody foresaw",
     "Report it with the message and the output of `kbundle doctor`."},
};
constexpr ErrorCause kUnavailable[] = {
    {"There is no NVIDIA driver, or no GPU, on this machine",
     "Run where there is one; builds need none."},
    {"A compiler or library is missing or broken: nvcc, NVRTC, nvFatbin, cuDNN, Triton, Warp",
     "`kbundle doctor PATH` tries each and says what to install or to set."},
    {"The library or a file cannot be read or mapped at this moment",
     "The system's reason is in the message: descriptors, memory, network file systems."},
};
constexpr ErrorCause kDataLoss[] = {
    {"Bytes of the file are not what its hashes say: a broken copy, disk or download",
     "`kbundle verify FILE` says where; copy it again, or build it again."},
    {"The file was changed or cut while it was open", "Replace bundles by rename, never in place."},
    {"The file is no bundle", "Check the path."},
};

constexpr ErrorRow kTable[] = {
    {StatusCode::kCancelled, "It was stopped before it was done.", kCancelled},
    {StatusCode::kUnknown, "The cause has no tag of its own; the message is all there is.", {}},
    {StatusCode::kInvalidArgument, "What was asked makes no sense here: ask differently.",
     kInvalidArgument},
    {StatusCode::kDeadlineExceeded, "A child process ran past its limit.", kDeadlineExceeded},
    {StatusCode::kNotFound, "There is no such thing; what there is follows.", kNotFound},
    {StatusCode::kAlreadyExists, "The name is taken by something else.", kAlreadyExists},
    {StatusCode::kPermissionDenied, "A policy or the system forbids it.", kPermissionDenied},
    {StatusCode::kResourceExhausted, "Memory, space or a limit is used up.", kResourceExhausted},
    {StatusCode::kFailedPrecondition,
     "The right thing in the wrong place: device, version, context or state.", kFailedPrecondition},
    {StatusCode::kAborted, "Not used by kbundle.", {}},
    {StatusCode::kOutOfRange, "A computed number does not fit.", kOutOfRange},
    {StatusCode::kUnimplemented, "Nothing here can do that yet.", kUnimplemented},
    {StatusCode::kInternal, "This is not your fault.", kInternal},
    {StatusCode::kUnavailable, "Something that is needed is not on this machine.", kUnavailable},
    {StatusCode::kDataLoss, "The bytes are damaged, and nothing of them was used.", kDataLoss},
    {StatusCode::kUnauthenticated, "Not used by kbundle.", {}},
};

}  // namespace

std::span<const ErrorRow> ErrorTable() { return kTable; }

}  // namespace kbundle::builder
