#pragma once

#include <memory>
#include <span>
#include <string_view>

namespace spillway::gateway {

class FairnessPolicy;

/// One queue for all tenants: the request that has waited longest goes next.
struct GlobalFifo {
  static constexpr std::string_view kind = "global_fifo", type_name = "GlobalFifo";
  static constexpr std::string_view doc =
      "One queue for all tenants: the request that has waited longest goes next; none can "
      "overtake.";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<FairnessPolicy> make(const GlobalFifo& config, std::span<const double> weights);

}  // namespace spillway::gateway
