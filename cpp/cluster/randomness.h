#pragma once

#include <vector>

#include "cluster/config.h"
#include "sim/rng.h"

namespace spillway::cluster {

/// The random streams that can change a run of `simulation`, in the order of `sim::Stream`. Empty:
/// the run is the same under every seed.
std::vector<sim::Stream> random_streams(const Simulation& simulation);

}  // namespace spillway::cluster
