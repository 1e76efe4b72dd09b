#pragma once

#include <memory>
#include <string_view>

namespace spillway::workload {

class ArrivalProcess;

/// Equal gaps.
struct Constant {
  static constexpr std::string_view kind = "constant", type_name = "Constant";
  static constexpr std::string_view doc =
      "Arrivals at equal gaps; the first request arrives one gap after the start.";
  static void fields(auto /*field*/) {}
};

/// Precondition: rate_per_s > 0.
std::unique_ptr<ArrivalProcess> make(const Constant& config, double rate_per_s);

}  // namespace spillway::workload
