#pragma once

#include <variant>

#include "sim/field.h"
#include "workload/synthetic.h"
#include "workload/trace.h"

namespace spillway::workload {

using Workload = std::variant<Synthetic, Trace>;

}  // namespace spillway::workload

extern template struct spillway::sim::Codec<spillway::workload::Workload>;
