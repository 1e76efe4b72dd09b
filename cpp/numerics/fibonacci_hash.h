#pragma once

#include <cstdint>

namespace spillway::numerics {

/// A cheap hash of a number, of which the high bits are well mixed.
constexpr std::uint64_t fibonacci_hash(std::int64_t value) {
  return static_cast<std::uint64_t>(value) * 0x9E3779B97F4A7C15u;
}

}  // namespace spillway::numerics
