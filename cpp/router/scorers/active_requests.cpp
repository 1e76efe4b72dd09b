#include "router/scorers/active_requests.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class ActiveRequestsScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) most = std::max(most, view.in_flight(i));
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::int32_t own = view.in_flight(i);
      scores[i] = own == 0 ? 1.0 : static_cast<double>(most - own) / static_cast<double>(most);
    }
  }
  Load load() const override {
    return [](const signals::View& view, std::size_t i) { return std::int64_t{view.in_flight(i)}; };
  }
};

}  // namespace

std::unique_ptr<Scorer> make(const ActiveRequests&) {
  return std::make_unique<ActiveRequestsScorer>();
}

}  // namespace spillway::router
