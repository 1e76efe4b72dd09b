#include "router/scorers/token_load.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class TokenLoadScorer final : public Scorer {
 public:
  explicit TokenLoadScorer(double threshold_tokens) : threshold_tokens_(threshold_tokens) {}

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto tokens =
          static_cast<double>(view.in_flight_tokens(i) + view.added_tokens(request, i));
      scores[i] = 1 - std::min(tokens, threshold_tokens_) / threshold_tokens_;
    }
  }

 private:
  double threshold_tokens_;
};

}  // namespace

std::unique_ptr<Scorer> make(const TokenLoad& config) {
  return std::make_unique<TokenLoadScorer>(config.queue_threshold_tokens);
}

}  // namespace spillway::router
