#include "workload/lengths/policies.h"

#include "workload/lengths/lengths.h"

namespace spillway::workload {

std::unique_ptr<LengthDistribution> make_lengths(const Lengths& lengths) {
  return std::visit([](const auto& config) { return make(config); }, lengths);
}

}  // namespace spillway::workload
