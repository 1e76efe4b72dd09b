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

/// Normal, clamped to [min, max] and rounded half away from zero.
struct Gaussian {
  double mean_tokens = 512;
  double std_dev_tokens = 256;
  std::int64_t min_tokens = 1;
  std::int64_t max_tokens = 1'000'000;

  static constexpr std::string_view kind = "gaussian", type_name = "Gaussian";
  static constexpr std::string_view doc =
      "Normally distributed lengths, clamped to [min_tokens, max_tokens] and rounded.";
  static void fields(auto field) {
    field("mean_tokens", &Gaussian::mean_tokens, "Mean before clamping.")
        .unit("tokens")
        .range(sim::at_least(0));
    field("std_dev_tokens", &Gaussian::std_dev_tokens, "Standard deviation before clamping.")
        .unit("tokens")
        .range(sim::at_least(0));
    field("min_tokens", &Gaussian::min_tokens, "Shorter draws are raised to this.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
    field("max_tokens", &Gaussian::max_tokens, "Longer draws are cut to this.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
  bool draws() const { return std_dev_tokens > 0 && min_tokens < max_tokens; }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const {
    check_bounds(min_tokens, max_tokens, path, out);
  }
};

std::unique_ptr<LengthDistribution> make(const Gaussian& config);

}  // namespace spillway::workload
