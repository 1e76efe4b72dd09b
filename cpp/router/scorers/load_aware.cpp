#include "router/scorers/load_aware.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class LoadAwareScorer final : public Scorer {
 public:
  explicit LoadAwareScorer(std::int64_t threshold) : threshold_(threshold) {}

  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto waiting = static_cast<double>(up_to(threshold_, view, i));
      scores[i] = 0.5 * (1.0 - waiting / static_cast<double>(threshold_));
    }
  }
  // Only followed with the default threshold.
  Load load() const override {
    return [](const signals::View& view, std::size_t i) {
      return up_to(LoadAware::kDefaultThreshold, view, i);
    };
  }

 private:
  static std::int64_t up_to(std::int64_t threshold, const signals::View& view, std::size_t i) {
    return std::min<std::int64_t>(view.occupancy(i).waiting, threshold);
  }

  std::int64_t threshold_;
};

}  // namespace

std::unique_ptr<Scorer> make(const LoadAware& config) {
  return std::make_unique<LoadAwareScorer>(config.threshold);
}

}  // namespace spillway::router
