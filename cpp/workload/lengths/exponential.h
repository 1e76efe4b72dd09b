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

/// Exponential, clamped to [min, max] and rounded half away from zero.
struct Exponential {
  double mean_tokens = 128;
  std::int64_t min_tokens = 1;
  std::int64_t max_tokens = 1'000'000;

  static constexpr std::string_view kind = "exponential", type_name = "Exponential";
  static constexpr std::string_view doc =
      "Exponentially distributed lengths, clamped to [min_tokens, max_tokens] and rounded.";
  static void fields(auto field) {
    field("mean_tokens", &Exponential::mean_tokens, "Mean before clamping.")
        .unit("tokens")
        .range(sim::more_than(0));
    field("min_tokens", &Exponential::min_tokens, "Shorter draws are raised to this.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
    field("max_tokens", &Exponential::max_tokens, "Longer draws are cut to this.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
  bool draws() const { return min_tokens < max_tokens; }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const {
    check_bounds(min_tokens, max_tokens, path, out);
  }
};

std::unique_ptr<LengthDistribution> make(const Exponential& config);

}  // namespace spillway::workload
