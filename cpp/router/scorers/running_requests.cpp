#include "router/scorers/running_requests.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

std::int64_t running(const signals::View& view, std::size_t i) { return view.occupancy(i).running; }

class RunningRequestsScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    score_smallest(scores, [&](std::size_t i) { return running(view, i); });
  }
  Load load() const override { return running; }
};

}  // namespace

std::unique_ptr<Scorer> make(const RunningRequests&) {
  return std::make_unique<RunningRequestsScorer>();
}

}  // namespace spillway::router
