// What the options of a build name: families read, targets and providers checked, and the Work that
// follows from them. A plan of a build and a unit compiled elsewhere start from the same.
#ifndef KBUNDLE_BUILDER_PIPELINE_BUILD_WORK_H_
#define KBUNDLE_BUILDER_PIPELINE_BUILD_WORK_H_

#include <string>
#include <vector>

#include "builder/compile/compile.h"
#include "builder/compile/work.h"
#include "builder/model/family.h"
#include "builder/pipeline/build.h"
#include "builder/store/object_store.h"

namespace kbundle::builder {

// Those of --provider; none of them: all there are. kInvalidArgument: there is none of this name.
Result<std::vector<const Provider*>> WantedProviders(const std::vector<std::string>& names);

// Owns families and Work; neither copied nor moved, since the Work points into the families.
// Borrows what it is made with. Not thread-safe.
class BuildWork {
 public:
  BuildWork(const BuildOptions* options, Reporter* reporter)
      : options_(*options), reporter_(*reporter) {}
  BuildWork(const BuildWork&) = delete;
  BuildWork& operator=(const BuildWork&) = delete;

  // First: of options.paths.
  Status ReadFamilies();
  // Then: variants and units, for --target, --provider, --problems, --only and --lean. `store`: of
  // the outline that problems are bound with. kInvalidArgument: nothing is left to build.
  Status Plan(const ObjectStore& store);

  const std::vector<Family>& families() const { return families_; }
  Work& work() { return work_; }
  int left_out() const { return left_out_; }  // variants, by --lean

 private:
  Status AddListed(const ObjectStore& store);
  Status KeepOnly();
  Status NothingFor(const std::vector<Target>& asked,
                    const std::vector<const Provider*>& providers) const;

  const BuildOptions& options_;
  Reporter& reporter_;
  std::vector<Family> families_;
  Work work_;
  int left_out_ = 0;
};

// What the units are compiled with, and how long a compile may take: $KBUNDLE_COMPILE_TIMEOUT.
// kInvalidArgument: that is no number of seconds.
Status FindTools(const BuildOptions& options, const Work& work, CompileContext* context);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_BUILD_WORK_H_
