#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "workload/lengths/bounds.h"
#include "workload/limits.h"

namespace spillway::workload {

class LengthDistribution;

/// A power-law tail between two bounds.
struct Pareto {
  double alpha = 1.5;
  std::int64_t min_tokens = 100;
  std::int64_t max_tokens = 100'000;

  static constexpr std::string_view kind = "pareto", type_name = "Pareto";
  static constexpr std::string_view doc =
      "Lengths with a heavy tail: a Pareto distribution truncated to [min_tokens, max_tokens] and "
      "rounded. Without truncation, the share of lengths above x is (min_tokens / x)^alpha.";
  static void fields(auto field) {
    field("alpha", &Pareto::alpha, "Tail index: the smaller, the heavier the tail.")
        .dimensionless()
        .range(sim::between(0.01, 100))
        .search(0.5, 4);
    field("min_tokens", &Pareto::min_tokens, "Shortest length.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens));
    field("max_tokens", &Pareto::max_tokens, "Longest length.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens));
  }
  bool draws() const { return min_tokens < max_tokens; }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const {
    check_bounds(min_tokens, max_tokens, path, out);
  }
};

std::unique_ptr<LengthDistribution> make(const Pareto& config);

}  // namespace spillway::workload
