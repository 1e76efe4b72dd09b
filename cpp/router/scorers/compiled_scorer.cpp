#include "router/scorers/compiled_scorer.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "router/scorers/scorer.h"
#include "signals/policy_records.h"

namespace spillway::router {

namespace {

class CompiledScorerPolicy final : public Scorer {
 public:
  explicit CompiledScorerPolicy(const CompiledScorer& config)
      : config_(config), functions_(config.called("router.scorers")), state_(config.state) {}

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    signals::record(view, instances_);
    signals::record(request, attributes_, seen_);
    functions_.score(&seen_, instances_.data(), static_cast<std::int64_t>(instances_.size()),
                     sim::to_seconds(view.now()), state_.data(), scores.data());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (!std::isnan(scores[i])) continue;
      throw sim::UsageError("the compiled policy '" + config_.name + "' wrote NaN as score " +
                            std::to_string(i) + " for request " + std::to_string(request.row()) +
                            " at " + sim::to_text(sim::to_seconds(view.now())) +
                            " s: must be a number");
    }
  }

 private:
  CompiledScorer config_;
  const ScorerFunctions& functions_;
  std::vector<double> state_;
  std::vector<signals::InstanceRecord> instances_;
  signals::RequestRecord seen_;                       // of the call
  std::vector<signals::AttributeRecord> attributes_;  // of the request of the call
};

}  // namespace

std::unique_ptr<Scorer> make(const CompiledScorer& config) {
  return std::make_unique<CompiledScorerPolicy>(config);
}

}  // namespace spillway::router
