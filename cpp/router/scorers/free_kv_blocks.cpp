#include "router/scorers/free_kv_blocks.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class FreeKvBlocksScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    score_smallest(scores, [&](std::size_t i) { return -view.instance(i).free_blocks; });
  }
};

}  // namespace

std::unique_ptr<Scorer> make(const FreeKvBlocks&) { return std::make_unique<FreeKvBlocksScorer>(); }

}  // namespace spillway::router
