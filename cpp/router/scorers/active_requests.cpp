#include "router/scorers/active_requests.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class ActiveRequestsScorer final : public Scorer {
 public:
  explicit ActiveRequestsScorer(const ActiveRequests& config)
      : idle_threshold_(config.idle_threshold), max_busy_score_(config.max_busy_score) {}

  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) most = std::max(most, view.in_flight(i));
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::int32_t own = view.in_flight(i);
      scores[i] = own <= idle_threshold_ ? 1.0
                                         : static_cast<double>(most - own) /
                                               static_cast<double>(most) * max_busy_score_;
    }
  }
  Load load() const override {
    return [](const signals::View& view, std::size_t i) { return std::int64_t{view.in_flight(i)}; };
  }

 private:
  std::int64_t idle_threshold_;
  double max_busy_score_;
};

}  // namespace

std::unique_ptr<Scorer> make(const ActiveRequests& config) {
  return std::make_unique<ActiveRequestsScorer>(config);
}

}  // namespace spillway::router
