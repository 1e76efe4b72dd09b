#include "router/scorers/load_aware.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

constexpr std::int64_t kThreshold = 128;

std::int64_t waiting_up_to_threshold(const signals::View& view, std::size_t i) {
  return std::min<std::int64_t>(view.occupancy(i).waiting, kThreshold);
}

class LoadAwareScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto waiting = static_cast<double>(waiting_up_to_threshold(view, i));
      scores[i] = 0.5 * (1.0 - waiting / static_cast<double>(kThreshold));
    }
  }
  Load load() const override { return waiting_up_to_threshold; }
};

}  // namespace

std::unique_ptr<Scorer> make(const LoadAware&) { return std::make_unique<LoadAwareScorer>(); }

}  // namespace spillway::router
