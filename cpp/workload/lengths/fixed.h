#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "workload/limits.h"

namespace spillway::workload {

class LengthDistribution;

/// Always the same length.
struct Fixed {
  std::int64_t tokens = 128;

  static constexpr std::string_view kind = "fixed", type_name = "Fixed";
  static constexpr std::string_view doc = "Always the same length.";
  static void fields(auto field) {
    field("tokens", &Fixed::tokens, "The length.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
};

std::unique_ptr<LengthDistribution> make(const Fixed& config);

}  // namespace spillway::workload
