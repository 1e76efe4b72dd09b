#pragma once

#include <memory>
#include <string_view>

namespace spillway::workload {

class ArrivalProcess;

/// Poisson arrivals: exponential gaps.
struct Poisson {
  static constexpr std::string_view kind = "poisson", type_name = "Poisson";
  static constexpr std::string_view doc = "Poisson arrivals: independent exponential gaps.";
  static void fields(auto /*field*/) {}
  static constexpr bool draws() { return true; }
};

/// Precondition: rate_per_s > 0.
std::unique_ptr<ArrivalProcess> make(const Poisson& config, double rate_per_s);

}  // namespace spillway::workload
