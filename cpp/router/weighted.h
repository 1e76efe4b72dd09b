#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "router/pickers/policies.h"
#include "router/policy.h"
#include "router/scorers/policies.h"
#include "sim/field.h"

namespace spillway::router {

/// Weighted sum of scores, then a pick.
struct Weighted {
  std::vector<AnyScorer> scorers{PrefixAffinity{3}, QueueDepth{2}, KvUtilization{2}};
  AnyPicker picker = Best{};

  static constexpr std::string_view kind = "weighted", type_name = "Weighted";
  static constexpr std::string_view doc =
      "Every scorer rates every instance between 0 and 1; the ratings are added up with the "
      "scorers' weights, which are divided by their sum, and an instance is picked by the result "
      "(the scheduling of llm-d's endpoint picker, whose default weights these are).";
  static constexpr auto fields() {
    using sim::field;
    return std::tuple(
        field("scorers", &Weighted::scorers, "What counts, in the order of addition."),
        field("picker", &Weighted::picker, "How an instance is picked by the scores."));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<RoutingPolicy> make(const Weighted& config);

}  // namespace spillway::router
