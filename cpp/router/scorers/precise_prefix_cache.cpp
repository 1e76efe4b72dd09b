#include "router/scorers/precise_prefix_cache.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class PrecisePrefixCacheScorer final : public Scorer {
 public:
  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    score_smallest(scores, [&](std::size_t i) { return -view.cached_blocks(request, i); });
  }
};

}  // namespace

std::unique_ptr<Scorer> make(const PrecisePrefixCache&) {
  return std::make_unique<PrecisePrefixCacheScorer>();
}

}  // namespace spillway::router
