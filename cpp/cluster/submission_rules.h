#pragma once

#include <vector>

#include "cluster/config.h"
#include "sim/error.h"

namespace spillway::cluster {

/// What prevents that requests from outside the workload are sent to the instances that they state;
/// paths from the root of the simulation.
std::vector<sim::Violation> violations_by_instances_of_submissions(const Simulation& simulation);

/// The same of requests that are handed off: those of which only the prompt is computed, and where
/// they go on.
std::vector<sim::Violation> violations_by_hand_offs(const Simulation& simulation);

}  // namespace spillway::cluster
