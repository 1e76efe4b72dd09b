#pragma once

#include <cstdint>

namespace spillway::signals {

/// The blocks of a prompt that an instance holds beside those in its KV memory. Only tests script
/// them: simulated instances have no such tiers.
struct Tiers {
  std::int64_t host_blocks = 0;
  std::int64_t disk_blocks = 0;
};

}  // namespace spillway::signals
