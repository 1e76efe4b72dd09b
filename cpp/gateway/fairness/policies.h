#pragma once

#include <variant>

#include "gateway/fairness/global_fifo.h"

namespace spillway::gateway {

using Fairness = std::variant<GlobalFifo>;

}  // namespace spillway::gateway
