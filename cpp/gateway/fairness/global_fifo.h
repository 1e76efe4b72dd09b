#pragma once

#include <memory>
#include <span>
#include <string_view>

namespace spillway::gateway {

class FairnessPolicy;

/// One queue for all tenants: the request that has waited longest goes next, except that none waits
/// behind another's own limit.
struct GlobalFifo {
  static constexpr std::string_view kind = "global_fifo", type_name = "GlobalFifo";
  static constexpr std::string_view doc =
      "One queue for all tenants: the request that has waited longest goes next. Only a request "
      "that waits for a limit of its own tenant or class is overtaken: with such limits, each "
      "tenant has a queue of its own.";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<FairnessPolicy> make(const GlobalFifo& config, std::span<const double> weights);

}  // namespace spillway::gateway
