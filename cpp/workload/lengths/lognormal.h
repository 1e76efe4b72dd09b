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

/// exp(normal), clamped to [min, max] and rounded half away from zero.
struct Lognormal {
  double mu = 5;
  double sigma = 1;
  std::int64_t min_tokens = 1;
  std::int64_t max_tokens = 1'000'000;

  static constexpr std::string_view kind = "lognormal", type_name = "Lognormal";
  static constexpr std::string_view doc =
      "Log-normally distributed lengths with mean exp(mu + sigma²/2), clamped to [min_tokens, "
      "max_tokens] and rounded.";
  static void fields(auto field) {
    field("mu", &Lognormal::mu, "Mean of the logarithm of the length.")
        .dimensionless()
        .range(sim::between(-20, 20));
    field("sigma", &Lognormal::sigma, "Standard deviation of the logarithm of the length.")
        .dimensionless()
        .range(sim::between(0, 10));
    field("min_tokens", &Lognormal::min_tokens, "Shorter draws are raised to this.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
    field("max_tokens", &Lognormal::max_tokens, "Longer draws are cut to this.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
  bool draws() const { return sigma > 0 && min_tokens < max_tokens; }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const {
    check_bounds(min_tokens, max_tokens, path, out);
  }
};

std::unique_ptr<LengthDistribution> make(const Lognormal& config);

}  // namespace spillway::workload
