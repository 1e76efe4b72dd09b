#pragma once

#include <variant>

#include "instance/latency/jittered.h"
#include "instance/latency/linear.h"

namespace spillway::instance {

using Latency = std::variant<Linear, Jittered>;

}  // namespace spillway::instance
