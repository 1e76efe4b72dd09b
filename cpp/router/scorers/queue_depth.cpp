#include "router/scorers/queue_depth.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class QueueDepthScorer final : public Scorer {
 public:
  explicit QueueDepthScorer(const QueueDepth& config) : load_(config.load) {}
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    if (load_ == QueueLoad::waiting) {
      score_smallest(scores, [&](std::size_t i) { return view.occupancy(i).waiting; });
    } else {
      score_smallest(scores, [&](std::size_t i) { return view.effective_load(i); });
    }
  }

 private:
  QueueLoad load_;
};

}  // namespace

std::unique_ptr<Scorer> make(const QueueDepth& config) {
  return std::make_unique<QueueDepthScorer>(config);
}

}  // namespace spillway::router
