// The measuring child's side of `kbundle tune`: requests on descriptor 3, answers on descriptor 4,
// one JSON object a line. It is started anew after a candidate took it down.
//
//   -> {"do": "problem", "bundle": PATH, "problem": {..}, "inputs": [..], "expected": [..]}
//   <- {"ok": true, "max_launches": 128}
//   -> {"do": "check", "variant": ID}
//   <- {"ok": true, "worst": 0.5, "ns": 5100}
//      or {"failed": "wrong", "error": "..", "lost": false}
//   -> {"do": "time", "variant": ID, "launches": 64, "samples": 3}
//   <- {"ok": true, "ns": [..], "state": {..}}
//
// The first line that it says is {"facts": {..}} about its device, or {"error": "..", "code": N}.
#ifndef KBUNDLE_BUILDER_TUNE_WORKER_H_
#define KBUNDLE_BUILDER_TUNE_WORKER_H_

#include <string>
#include <vector>

namespace kbundle::builder {

// arguments: "host", or "cuda" and perhaps what CUDA_VISIBLE_DEVICES is to be. The exit code of the
// process.
int RunTuneWorker(const std::vector<std::string>& arguments);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_WORKER_H_
