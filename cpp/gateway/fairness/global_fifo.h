#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <tuple>

#include "gateway/fairness/fairness.h"
#include "sim/field.h"

namespace spillway::gateway {

/// One queue for all tenants: whoever has waited longest goes next.
struct GlobalFifo {
  static constexpr std::string_view kind = "global_fifo", type_name = "GlobalFifo";
  static constexpr std::string_view doc =
      "One queue for all tenants: whoever has waited longest goes next; nobody overtakes.";
  static constexpr auto fields() { return std::tuple(); }
};

std::unique_ptr<FairnessPolicy> make(const GlobalFifo& config, std::span<const double> weights);

}  // namespace spillway::gateway
