#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::workload {

/// How many tenants, and how many classes, a run can tell apart: they are numbered with 16 bits.
inline constexpr std::size_t kMaxNames = 65535;

/// The longest prompt, and the longest answer.
inline constexpr std::int32_t kMaxTokens = 100'000'000;

}  // namespace spillway::workload
