#include "router/scorers/load_balance.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class LoadBalanceScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      scores[i] = 1.0 / (1.0 + static_cast<double>(view.effective_load(i)));
    }
  }
  Load load() const override { return effective_load; }
};

}  // namespace

std::unique_ptr<Scorer> make(const LoadBalance&) { return std::make_unique<LoadBalanceScorer>(); }

}  // namespace spillway::router
