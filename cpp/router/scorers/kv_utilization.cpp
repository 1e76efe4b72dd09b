#include "router/scorers/kv_utilization.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class KvUtilizationScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = 1.0 - view.kv_utilization(i);
  }
};

}  // namespace

std::unique_ptr<Scorer> make(const KvUtilization&) {
  return std::make_unique<KvUtilizationScorer>();
}

}  // namespace spillway::router
