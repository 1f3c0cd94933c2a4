// Times are hashes of all that a time may depend on. A short pause makes an answer take long enough
// for a kill to fall between two.
#include "builder/tune/replay.h"

#include <fmt/format.h>

#include <thread>

#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr auto kPause = std::chrono::microseconds(300);  // so that a kill finds something to hit

class ReplayMeasurer : public Measurer {
 public:
  ReplayMeasurer(std::string seed, const std::vector<const SpaceProblem*>& problems)
      : seed_(std::move(seed)), problems_(problems) {}

  Result<nlohmann::json> Facts() override {
    return nlohmann::json{{"name", "Replay " + seed_}, {"target", "replay"}};
  }
  Status Load(size_t number, const std::string&) override {
    problem_ = problems_[number]->problem.ToString();
    return Status();
  }
  Measured Check(const std::string& variant) override {
    std::this_thread::sleep_for(kPause);
    Measured measured;
    if (Hash(variant, -1, 0) % 10 == 0) {
      measured.kind = "wrong";
      measured.message = "as the seed has it";
    }
    measured.workspace = static_cast<int64_t>(256 * (Hash(variant, -3, 0) % 3));
    return measured;
  }
  Measured Time(const std::string& variant, int round, int samples) override {
    std::this_thread::sleep_for(kPause);
    Measured measured;
    const double base = 1000 + static_cast<double>(Hash(variant, -2, 0) % 500);
    for (int i = 0; i < samples; ++i) {
      measured.ns.push_back(base + static_cast<double>(Hash(variant, round, i) % 20));
    }
    return measured;
  }
  void Drop(size_t) override {}

 private:
  uint64_t Hash(const std::string& variant, int round, int sample) const {
    const std::string text = fmt::format("{}|{}|{}|{}|{}", seed_, problem_, variant, round, sample);
    return Xxh3(text.data(), text.size());
  }

  const std::string seed_;
  const std::vector<const SpaceProblem*>& problems_;
  std::string problem_;
};

}  // namespace

std::unique_ptr<Measurer> MakeReplayMeasurer(const std::string& seed,
                                             const std::vector<const SpaceProblem*>& problems) {
  return std::make_unique<ReplayMeasurer>(seed, problems);
}

}  // namespace kbundle::builder
