#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::workload {

/// Maximum number of tenants, and of classes, in a run: their indices have 16 bits.
inline constexpr std::size_t kMaxNames = 65535;

/// Maximum length of a prompt, and of an output.
inline constexpr std::int32_t kMaxTokens = 100'000'000;

}  // namespace spillway::workload
