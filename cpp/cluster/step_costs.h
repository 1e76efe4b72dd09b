#pragma once

#include "cluster/config.h"
#include "gateway/step_costs.h"

namespace spillway::cluster {

/// Step times of the fleet's servers, as lines through steps without and with a prompt or more
/// decoding requests: the mean over the instances that make steps. Those of the default Linear
/// where none does, or no policy of the gateway reads them.
gateway::StepCosts step_costs(const Simulation& simulation);

}  // namespace spillway::cluster
