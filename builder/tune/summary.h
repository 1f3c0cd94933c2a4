// What records amount to.
#ifndef KBUNDLE_BUILDER_TUNE_SUMMARY_H_
#define KBUNDLE_BUILDER_TUNE_SUMMARY_H_

#include <vector>

#include "builder/record/record.h"
#include "builder/tune/tune.h"

namespace kbundle::builder {

// Enters winners other than the default, gains over it, and how far samples spread.
void SummarizeRecords(const std::vector<TuningRecord>& records, TuneReport* report);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_SUMMARY_H_
