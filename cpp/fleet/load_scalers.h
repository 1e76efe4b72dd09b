#pragma once

#include <cstdint>

#include "fleet/config.h"
#include "fleet/load.h"

namespace spillway::fleet {

/// The target number of instances at a poll, by rules without memory. `instances`: in service,
/// ready or not.
std::int64_t poll(const WvaScaler& config, const FleetLoad& load, std::int64_t instances);
std::int64_t poll(const PlannerScaler& config, const FleetLoad& load, std::int64_t instances);

}  // namespace spillway::fleet
