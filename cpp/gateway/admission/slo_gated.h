#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;

/// Which load of the instances counts.
enum class GateSignal : std::uint8_t { max_waiting, mean_effective_load, total_waiting };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::GateSignal> {
  static constexpr std::array<std::string_view, 3> names{"max_waiting", "mean_effective_load",
                                                         "total_waiting"};
};

namespace spillway::gateway {

/// A threshold on the load for each of three ranks of importance.
struct SloGated {
  GateSignal signal = GateSignal::max_waiting;
  std::int64_t critical_priority = 4;
  std::optional<double> standard_threshold = 10;
  double sheddable_threshold = 5;

  static constexpr std::string_view kind = "slo_gated", type_name = "SloGated";
  static constexpr std::string_view doc =
      "Refuses the less important classes while the instances are loaded: sheddable ones (negative "
      "priority) first, then those below critical_priority, the others never. Presets: the three "
      "variants of the published experiments, each named like its signal.";
  static void fields(auto field) {
    field("signal", &SloGated::signal,
          "max_waiting: the longest engine queue, refused from the threshold on; "
          "mean_effective_load: waiting + running + in flight (the former two twice), on "
          "average, and total_waiting: the engine queues together, both refused above the "
          "threshold.");
    field("critical_priority", &SloGated::critical_priority,
          "Classes of this priority and above are always admitted.")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("standard_threshold", &SloGated::standard_threshold,
          "Load at which other classes that are not sheddable are refused; absent: they never "
          "are.")
        .unit("requests")
        .range(sim::at_least(0))
        .search(2, 20);
    field("sheddable_threshold", &SloGated::sheddable_threshold,
          "Load at which sheddable classes are refused.")
        .unit("requests")
        .range(sim::at_least(0))
        .search(1, 10);
  }
  static const std::vector<std::pair<std::string_view, SloGated>>& presets();
  static constexpr std::array reasons{
      workload::Reason{"slo_gated", workload::categories::kSaturated,
                       "the instances are too loaded for a class of this importance"}};
};

std::unique_ptr<AdmissionPolicy> make(const SloGated& config);

}  // namespace spillway::gateway
