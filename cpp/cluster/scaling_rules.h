#pragma once

#include <vector>

#include "cluster/config.h"
#include "sim/error.h"

namespace spillway::cluster {

/// What is not possible in the sizes of a fleet and its pools, and in their autoscalers.
std::vector<sim::Violation> violations_by_scaling(const Simulation& simulation);

}  // namespace spillway::cluster
