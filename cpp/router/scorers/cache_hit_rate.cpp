#include "router/scorers/cache_hit_rate.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class CacheHitRateScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const signals::InstanceSignal seen = view.instance(i);
      scores[i] = seen.prefix_lookups == 0 ? 0.0
                                           : static_cast<double>(seen.prefix_hits) /
                                                 static_cast<double>(seen.prefix_lookups);
    }
  }
};

}  // namespace

std::unique_ptr<Scorer> make(const CacheHitRate&) { return std::make_unique<CacheHitRateScorer>(); }

}  // namespace spillway::router
