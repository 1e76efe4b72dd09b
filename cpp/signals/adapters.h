#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::signals {

/// The LoRA adapters of an instance. Only tests script them: simulated instances have none.
struct Adapters {
  std::vector<std::string> active;
  std::vector<std::string> waiting;
  std::int64_t max_active = 0;
};

}  // namespace spillway::signals
