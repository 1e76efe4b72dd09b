#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/compiled_policy.h"
#include "signals/needs.h"

namespace spillway::router {

class Scorer;

struct ScorerFunctions : sim::Attachment {
  signals::ScoreFunction* score = nullptr;
  std::shared_ptr<void> owner;  ///< keeps the code in memory
};

/// A scorer in a C function.
struct CompiledScorer : signals::CompiledPolicy<ScorerFunctions> {
  double weight = 1;

  static constexpr std::string_view type_name = "CompiledScorer";
  static constexpr std::string_view doc =
      "A scorer in a C function, made by spillway.policies.compiled_scorer.";
  static void fields(auto field) {
    add_weight<CompiledScorer>(field);
    CompiledPolicy::fields<CompiledScorer>(field);
  }
  static constexpr signals::Needs needs{.output_lengths = true};
};

std::unique_ptr<Scorer> make(const CompiledScorer& config);

}  // namespace spillway::router
