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

/// The load signal.
enum class GateSignal : std::uint8_t { max_waiting, mean_effective_load, total_waiting };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::GateSignal> {
  static constexpr std::array<std::string_view, 3> names{"max_waiting", "mean_effective_load",
                                                         "total_waiting"};
};

namespace spillway::gateway {

/// Thresholds on the load for two of three ranks of importance.
struct SloGated {
  GateSignal signal = GateSignal::max_waiting;
  std::int64_t critical_priority = 4;
  std::optional<double> standard_threshold = 10;
  double sheddable_threshold = 5;

  static constexpr std::string_view kind = "slo_gated", type_name = "SloGated";
  static constexpr std::string_view doc =
      "Rejects the less important classes while the instances are loaded: sheddable ones (negative "
      "priority) first, then those below critical_priority, the others never. Presets: the three "
      "variants of the published experiments, each named after its signal.";
  static void fields(auto field) {
    field("signal", &SloGated::signal,
          "max_waiting: the longest engine queue, with rejections from the threshold on; "
          "mean_effective_load: the mean of waiting + running + in flight (requests in an instance "
          "count twice), and total_waiting: the sum of the engine queues, both with rejections "
          "above the threshold.");
    field("critical_priority", &SloGated::critical_priority,
          "Classes of at least this priority are always admitted.")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("standard_threshold", &SloGated::standard_threshold,
          "Load at which other classes that are not sheddable are rejected; unset: never.")
        .unit("requests")
        .range(sim::at_least(0))
        .search(2, 20)
        .runtime();
    field("sheddable_threshold", &SloGated::sheddable_threshold,
          "Load at which sheddable classes are rejected.")
        .unit("requests")
        .range(sim::at_least(0))
        .search(1, 10)
        .runtime();
  }
  static const std::vector<std::pair<std::string_view, SloGated>>& presets();
  static constexpr std::array reasons{
      workload::Reason{"slo_gated", workload::categories::kSaturated,
                       "the instances are too loaded for a class of this importance"}};
};

std::unique_ptr<AdmissionPolicy> make(const SloGated& config);

}  // namespace spillway::gateway
