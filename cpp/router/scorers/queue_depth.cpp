#include "router/scorers/queue_depth.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

std::int64_t waiting(const signals::View& view, std::size_t i) { return view.occupancy(i).waiting; }

class QueueDepthScorer final : public Scorer {
 public:
  explicit QueueDepthScorer(const QueueDepth& config) : load_(config.load) {}
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    if (load_ == QueueLoad::waiting) {
      score_smallest(scores, [&](std::size_t i) { return waiting(view, i); });
    } else {
      score_smallest(scores, [&](std::size_t i) { return effective_load(view, i); });
    }
  }
  Load load() const override { return load_ == QueueLoad::waiting ? waiting : effective_load; }

 private:
  QueueLoad load_;
};

}  // namespace

std::unique_ptr<Scorer> make(const QueueDepth& config) {
  return std::make_unique<QueueDepthScorer>(config);
}

}  // namespace spillway::router
