#include "router/scorers/precise_prefix_cache.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class PrecisePrefixCacheScorer final : public Scorer {
 public:
  explicit PrecisePrefixCacheScorer(CacheScale scale) : scale_(scale) {}

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    if (scale_ == CacheScale::range) {
      return score_smallest(scores, [&](std::size_t i) { return -view.cached_blocks(request, i); });
    }
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = view.cached_share(request, i);
  }

 private:
  CacheScale scale_;
};

}  // namespace

std::unique_ptr<Scorer> make(const PrecisePrefixCache& config) {
  return std::make_unique<PrecisePrefixCacheScorer>(config.scale);
}

}  // namespace spillway::router
