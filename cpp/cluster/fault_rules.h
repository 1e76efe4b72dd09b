#pragma once

#include <vector>

#include "cluster/config.h"
#include "sim/error.h"

namespace spillway::cluster {

/// What prevents that instances of the simulation fail as it states; paths from its root.
std::vector<sim::Violation> violations_by_faults(const Simulation& simulation);

/// The same of replicas of the gateway that crash.
std::vector<sim::Violation> violations_by_gateway_faults(const Simulation& simulation);

}  // namespace spillway::cluster
