#pragma once

#include <variant>

#include "workload/synthetic.h"
#include "workload/trace.h"

namespace spillway::workload {

using Workload = std::variant<Synthetic, Trace>;

}  // namespace spillway::workload
