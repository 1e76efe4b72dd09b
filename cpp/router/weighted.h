#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "router/filters/policies.h"
#include "router/pickers/policies.h"
#include "router/scorers/policies.h"
#include "signals/follows.h"
#include "signals/needs.h"
#include "sim/error.h"
#include "sim/randomness.h"
#include "workload/outcome.h"

namespace spillway::router {

class RoutingPolicy;

/// Filters, then a weighted sum of scores, then a pick.
struct Weighted {
  std::vector<AnyFilter> filters;
  std::vector<AnyScorer> scorers{PrefixAffinity{3}, QueueDepth{2}, KvUtilization{2}};
  AnyPicker picker = Best{};

  static constexpr std::string_view kind = "weighted", type_name = "Weighted";
  static constexpr std::string_view doc =
      "Every scorer scores the instances that pass the filters between 0 and 1. The scores are "
      "added with the scorers' weights, normalized by their sum, and the picker chooses an "
      "instance by the result (the scheduling of llm-d's endpoint picker, with its default "
      "weights).";
  static void fields(auto field) {
    field("filters", &Weighted::filters,
          "Candidate instances; each filter sees those that passed the previous ones.");
    field("scorers", &Weighted::scorers, "Scorers, in the order of addition.");
    field("picker", &Weighted::picker, "How an instance is chosen by its score.");
  }
  static constexpr std::array reasons{
      workload::Reason{"no_candidate", workload::categories::kNoCandidate,
                       "a filter with if_none: reject leaves no instance"}};
  /// A single scorer by a load, whose best score is taken: its instance has the smallest load.
  signals::Follows follows() const;
  bool draws() const { return sim::can_draw(filters) || sim::can_draw(picker); }
  signals::Needs needs() const {
    return signals::needs_of(filters) | signals::needs_of(scorers) | signals::needs_of(picker);
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<RoutingPolicy> make(const Weighted& config);

}  // namespace spillway::router
