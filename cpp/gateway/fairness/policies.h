#pragma once

#include <variant>

#include "gateway/fairness/global_fifo.h"
#include "sim/field.h"

namespace spillway::gateway {

using Fairness = std::variant<GlobalFifo>;

}  // namespace spillway::gateway

extern template struct spillway::sim::Codec<spillway::gateway::Fairness>;
