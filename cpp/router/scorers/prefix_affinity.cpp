#include "router/scorers/prefix_affinity.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class PrefixAffinityScorer final : public Scorer {
 public:
  explicit PrefixAffinityScorer(const PrefixAffinity& config)
      : weight_(config.match_length_weight), scale_tokens_(config.match_length_scale_tokens) {}

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    view.prefix_matches(request, scores);
    if (weight_ != 0) weigh_lengths(request, view, scores);
  }

 private:
  [[gnu::noinline]] void weigh_lengths(const signals::RequestView& request,
                                       const signals::View& view, std::span<double> scores) const {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double length =
          std::min(static_cast<double>(view.sent_tokens(request, i)) / scale_tokens_, 1.0);
      scores[i] = weight_ * length * length + (1 - weight_) * scores[i];
    }
  }

  double weight_;
  double scale_tokens_;
};

}  // namespace

std::unique_ptr<Scorer> make(const PrefixAffinity& config) {
  return std::make_unique<PrefixAffinityScorer>(config);
}

}  // namespace spillway::router
