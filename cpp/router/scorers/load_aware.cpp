#include "router/scorers/load_aware.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class LoadAwareScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    constexpr double kThreshold = 128;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto waiting = static_cast<double>(view.occupancy(i).waiting);
      scores[i] = 0.5 * (1.0 - std::min(waiting, kThreshold) / kThreshold);
    }
  }
};

}  // namespace

std::unique_ptr<Scorer> make(const LoadAware&) { return std::make_unique<LoadAwareScorer>(); }

}  // namespace spillway::router
