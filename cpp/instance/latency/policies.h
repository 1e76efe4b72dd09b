#pragma once

#include <variant>

#include "instance/latency/jittered.h"
#include "instance/latency/linear.h"
#include "sim/field.h"

namespace spillway::instance {

using Latency = std::variant<Linear, Jittered>;

}  // namespace spillway::instance

extern template struct spillway::sim::Codec<spillway::instance::Latency>;
