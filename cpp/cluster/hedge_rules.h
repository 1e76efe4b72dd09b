#pragma once

#include <vector>

#include "cluster/config.h"
#include "sim/error.h"

namespace spillway::cluster {

/// What is not possible in a simulation whose clients hedge.
std::vector<sim::Violation> violations_by_hedges(const Simulation& simulation);

}  // namespace spillway::cluster
