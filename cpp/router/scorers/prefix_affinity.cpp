#include "router/scorers/prefix_affinity.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class PrefixAffinityScorer final : public Scorer {
 public:
  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    view.prefix_matches(request, scores);
  }
};

}  // namespace

std::unique_ptr<Scorer> make(const PrefixAffinity&) {
  return std::make_unique<PrefixAffinityScorer>();
}

}  // namespace spillway::router
