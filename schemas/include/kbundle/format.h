// The bundle file: header, limits and on-disk numbers. FORMAT.md quotes this file.
//
//   0                128                                                        file_size
//   +----------------+-----------------+---------------------------------------+
//   | Header         | index           | blobs, each at a multiple of 64,      |
//   |                | outline | pages | padding zero, no holes, no overlap    |
//   +----------------+-----------------+---------------------------------------+
//
// All integers are little-endian. The header never changes its first 64 bytes, so that an old
// reader can refuse a new file with a good sentence.
#ifndef KBUNDLE_FORMAT_H_
#define KBUNDLE_FORMAT_H_

#include <cstddef>
#include <cstdint>

namespace kbundle {

// First byte outside ASCII and a CR LF, as PNG does: catches text-mode transfers.
inline constexpr uint8_t kMagic[8] = {0x89, 'K', 'B', 'N', 'D', 'L', '\r', '\n'};
inline constexpr uint16_t kFormatMajor = 1;
inline constexpr uint16_t kFormatMinor = 0;
inline constexpr char kIndexIdentifier[] = "KBI1";  // FlatBuffers file identifier

// Bits that a reader must understand, or refuse the file (kUnimplemented).
inline constexpr uint64_t kFeatureDeltaFrames = 1u << 0;  // blobs with a base blob
inline constexpr uint64_t kFeatureOffsets = 1u << 1;      // pointer arguments with an offset
inline constexpr uint64_t kFeatureStructs = 1u << 2;      // arguments that are structs
inline constexpr uint64_t kFeatureAsking = 1u << 3;       // own steps without a blob
inline constexpr uint64_t kFeaturePages = 1u << 4;        // an index with pages behind its outline
inline constexpr uint64_t kKnownFeatures =
    kFeatureDeltaFrames | kFeatureOffsets | kFeatureStructs | kFeatureAsking | kFeaturePages;

// Kernel.blob, Blob.base: there is none.
inline constexpr uint32_t kNoBlob = 0xffffffff;

struct Header {
  uint8_t magic[8];
  uint16_t format_major;
  uint16_t format_minor;
  uint32_t header_size;        // 128
  uint64_t required_features;  // kFeature bits
  uint64_t file_size;          // equals the file's length: neither truncated nor extended
  uint64_t index_offset;       // 128
  uint64_t index_size;
  uint64_t index_xxh3;       // XXH3-64 of the index's outline, checked by every open
  uint64_t header_xxh3;      // XXH3-64 of the whole header with this field zero
  uint8_t index_sha256[32];  // for signatures: header -> outline -> pages -> every blob's SHA-256
  uint64_t pages_size;       // bytes of the index behind its outline; 0: the outline is all of it
  uint8_t reserved[24];      // zero
};
static_assert(sizeof(Header) == 128);
static_assert(offsetof(Header, index_sha256) == 64);

// What FlatBuffers' verifier takes of an index: a table is at least 8 bytes, so the limit grows
// with the index and no further.
inline constexpr uint32_t kMaxIndexDepth = 16;
inline constexpr uint64_t MaxIndexTables(uint64_t index_size) { return index_size / 8 + 16; }

// What of an index is behind its outline is read and hashed by pages of so many bytes, when they
// are needed. Their hashes are the last bytes of the outline, which the header's hashes cover.
inline constexpr uint64_t kIndexPageBytes = 2048;
inline constexpr uint64_t kPageHashBytes = 32;  // SHA-256
inline constexpr uint64_t PageCount(uint64_t pages_size) {
  return (pages_size + kIndexPageBytes - 1) / kIndexPageBytes;
}

// Limits, enforced before any allocation (kResourceExhausted or kDataLoss).
inline constexpr uint64_t kMaxIndexBytes = 256ull << 20;
inline constexpr uint64_t kMaxBlobBytes = 256ull << 20;  // uncompressed
inline constexpr uint64_t kMaxVariants = 1ull << 24;
inline constexpr uint64_t kMaxOps = 1ull << 16;
inline constexpr uint64_t kMaxTuned = 1ull << 20;  // tuned problems
inline constexpr uint32_t kMaxNameBytes = 4096;
inline constexpr uint32_t kMaxRank = 16;
inline constexpr uint32_t kMaxOperands = 64;  // operands + results of an op
inline constexpr uint32_t kMaxAttributes = 64;
inline constexpr uint32_t kMaxAttributeElements = 64;  // of an array attribute
inline constexpr uint32_t kMaxTypeParams = 8;
inline constexpr uint32_t kMaxSymbols = 256;  // dim symbols of an op
inline constexpr uint32_t kMaxRules = 64;     // of one require or when list
inline constexpr uint32_t kMaxTunables = 32;
inline constexpr uint32_t kMaxLets = 32;
inline constexpr uint32_t kMaxRegions = 16;
inline constexpr uint32_t kMaxSteps = 16;
inline constexpr uint32_t kMaxArgs = 64;            // of one step; programs of an own step
inline constexpr uint32_t kMaxArgBytes = 4096;      // of one kernel launch
inline constexpr uint32_t kStructAlignment = 16;    // of every struct that is an argument
inline constexpr uint32_t kMaxProgramLength = 256;  // instructions
inline constexpr uint32_t kMaxStackDepth = 32;
inline constexpr int kZstdWindowLogMax = 27;  // bounds the decoder's memory
inline constexpr uint64_t kBlobAlignment = 64;
inline constexpr uint64_t kWorkspaceAlignment = 256;               // of every region
inline constexpr uint64_t kMaxStepWorkspace = (1ull << 32) - 256;  // of a provider's own step

// What a target is (Target.kind in bundle.fbs). Values are stored: never renumber.
enum class TargetKind : uint8_t { kCuda = 1, kCudaPortable = 2, kHost = 3 };
// kOwn: what only the variant's provider can read, resolve and enqueue (kbundle/provider/).
enum class StepKind : uint8_t { kKernel = 1, kMemset = 2, kCopy = 3, kOwn = 4 };
enum class AttributeType : uint8_t {
  kBool = 1,
  kInt = 2,
  kFloat = 3,
  kDType = 4,
  kEnum = 5,
  kIntArray = 6,
  kFloatArray = 7
};
enum class VmapRule : uint8_t { kLoop = 0, kLeading = 1, kNone = 2 };

// One argument of a kernel or of a provider's own step. A pointer's program, where it has one, is
// an offset in elements of its tensor.
enum class ArgKind : uint8_t {
  kOperand = 1,    // pointer; index = operand
  kResult = 2,     // pointer; index = result
  kRegion = 3,     // pointer; index = workspace region
  kInteger = 4,    // program, converted to ctype, checked to fit
  kFloat = 5,      // index = float attribute, as ctype kF32 or kF64; count > 0: element of an array
  kArray = 6,      // index = array attribute, ctype[count] by value, zero padded
  kTensorMap = 7,  // index into Step.tensor_maps
  kStruct = 8,     // index into Step.structs
};

// Instructions of the expression language. One uint32 each: opcode in the low 8 bits, operand in
// the high 24. Postfix, no jumps. A stack slot carries a value or an error (overflow, division by
// zero); && || ?: look only at the side that decides, which is what makes them short-circuit.
enum class Opcode : uint8_t {
  kConst = 1,       // operand: index into Index.constants
  kDim = 2,         // operand: index into Op.symbols
  kAttribute = 3,   // operand: attribute index; bool 0/1, int, enum index, dtype number
  kLength = 4,      // operand: array attribute index
  kElement = 5,     // operand: attribute index | element << 8 (int array)
  kPresent = 6,     // operand: tensor number (operands, then results)
  kSizeOfType = 7,  // operand: type parameter; bytes
  kType = 8,        // operand: type parameter; dtype number
  kAlign = 9,       // operand: tensor number; guaranteed bytes of its address
  kRank = 10,       // operand: tensor number
  kTensorDim = 11,  // operand: tensor number | axis << 8
  kStride = 12,     // operand: tensor number | axis << 8; elements
  kTunable = 13,    // operand: tunable index
  kLet = 14,        // operand: let index (only lets before it)
  kSmCount = 15,
  kFloatBits = 16,  // operand: float attribute; the bits of its value as f32
  kAdd = 32,
  kSub,
  kMul,
  kDiv,
  kMod,
  kMin,
  kMax,
  kCeilDiv,
  kEq = 48,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kNeg = 64,
  kNot,
  kAbs,
  kNextPow2,
  kCeilLog2,
  kSelect = 80,  // condition, then, else
};

}  // namespace kbundle

#endif  // KBUNDLE_FORMAT_H_
