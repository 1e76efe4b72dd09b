#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "workload/limits.h"

namespace spillway::workload {

class LengthDistribution;

/// Given lengths with given weights.
struct Empirical {
  std::vector<std::int64_t> values{128};
  std::vector<double> weights;

  static constexpr std::string_view kind = "empirical", type_name = "Empirical";
  static constexpr std::string_view doc =
      "Lengths drawn from given values with probabilities proportional to given weights.";
  static void fields(auto field) {
    field("values", &Empirical::values, "The possible lengths.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
    field("weights", &Empirical::weights, "One weight per value, on any scale; empty: all equal.")
        .dimensionless()
        .range(sim::at_least(0));
  }
  /// Whether more than one length is possible.
  bool draws() const;
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<LengthDistribution> make(const Empirical& config);

}  // namespace spillway::workload
