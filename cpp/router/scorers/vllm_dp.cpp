#include "router/scorers/vllm_dp.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

std::int64_t coordinator_load(const signals::View& view, std::size_t i) {
  const signals::Occupancy here = view.occupancy(i);
  return 4 * std::int64_t{here.waiting} + here.running;
}

class VllmDpScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    score_smallest(scores, [&](std::size_t i) { return coordinator_load(view, i); });
  }
  Load load() const override { return coordinator_load; }
};

}  // namespace

std::unique_ptr<Scorer> make(const VllmDp&) { return std::make_unique<VllmDpScorer>(); }

}  // namespace spillway::router
