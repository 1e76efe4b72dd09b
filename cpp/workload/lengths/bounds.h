#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/error.h"

namespace spillway::workload {

/// Reports bounds that no length satisfies.
inline void check_bounds(std::int64_t min, std::int64_t max, const std::string& path,
                         std::vector<sim::Violation>& out) {
  if (min <= max) return;
  out.push_back({sim::join_path(path, "max_tokens"), std::to_string(max),
                 "must be >= min_tokens (" + std::to_string(min) + ")"});
}

}  // namespace spillway::workload
