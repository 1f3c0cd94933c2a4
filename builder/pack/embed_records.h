// Tuning records as rows of the index: winners, and the evidence for the table of candidates.
#ifndef KBUNDLE_BUILDER_PACK_EMBED_RECORDS_H_
#define KBUNDLE_BUILDER_PACK_EMBED_RECORDS_H_

#include <map>
#include <string>
#include <vector>

#include "builder/compile/work.h"
#include "builder/record/record.h"
#include "builder/store/object.h"
#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/sha256.h"

namespace kbundle::builder {

// The records of one file.
struct FoundRecords {
  std::string path;
  std::vector<TuningRecord> records;
};

// tuning/*.jsonl beside each manifest, sorted by name. An error names file and line; one problem on
// one device in two files is one.
Result<std::vector<FoundRecords>> FindRecords(const std::vector<Family>& families);

struct EmbeddedRecords {
  std::vector<fb::Tuned> rows;
  std::vector<fb::EvidenceT> evidence;
  std::vector<double> coordinates;
  std::vector<std::string> devices;
  Sha256Digest digest{};              // of the lines that were embedded
  std::vector<std::string> left_out;  // "path: PROBLEM: left out: why"
};

// `bundle` is the same work packed without records. Records of targets that are not built are
// passed over; one whose winner or default is gone or has other code by now does not decide and is
// noted.
Result<EmbeddedRecords> EmbedRecords(const std::vector<FoundRecords>& found, const Bundle& bundle,
                                     const Work& work, const std::vector<Object>& objects);

// Why a record's answer does not hold for today's code; "" when it does. `fingerprints`: by
// variant.
std::string WhyStale(const TuningRecord& record,
                     const std::map<std::string, std::string>& fingerprints);

// Of the variants of these ops, by id.
std::map<std::string, std::string> FingerprintsOf(const Work& work,
                                                  const std::vector<Object>& objects);

// The record's problem against the bundle's interface.
Result<Problem> ProblemOf(const TuningRecord& record, const Bundle& bundle);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_EMBED_RECORDS_H_
