#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::signals {

class View;

/// How saturation is measured.
enum class Detector : std::uint8_t { utilization, concurrency };

}  // namespace spillway::signals

template <>
struct spillway::sim::EnumNames<spillway::signals::Detector> {
  static constexpr std::array<std::string_view, 2> names{"utilization", "concurrency"};
};

namespace spillway::signals {

/// The saturation of the fleet, 1 where it is full: settings shared by all policies that depend on
/// it.
struct SaturationDetector {
  Detector detector = Detector::utilization;
  double queue_depth_threshold = 5;
  double kv_utilization_threshold = 0.8;
  double max_concurrency = 100;

  static void fields(auto field) {
    using Self = SaturationDetector;
    field("detector", &Self::detector,
          "utilization: from the metrics that the instances report; concurrency: from the "
          "gateway's own count.");
    field("queue_depth_threshold", &Self::queue_depth_threshold,
          "Number of waiting requests at which an instance is saturated.")
        .unit("requests")
        .range(sim::positive_up_to(1e9))
        .log_search(1, 64)
        .runtime();
    field("kv_utilization_threshold", &Self::kv_utilization_threshold,
          "Share of KV memory in use at which an instance is saturated.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.5, 1)
        .runtime();
    field("max_concurrency", &Self::max_concurrency,
          "Requests in flight per instance at which the fleet is saturated.")
        .unit("requests")
        .range(sim::positive_up_to(1e9))
        .log_search(8, 1024)
        .runtime();
  }
};

/// utilization: mean over the instances of the larger of waiting ÷ queue_depth_threshold and KV use
/// ÷ kv_utilization_threshold, 1 for an instance whose signals are stale. concurrency: `in_flight`
/// ÷ (max_concurrency × instances). 1 while no instance is ready.
double saturation(const SaturationDetector& config, const View& view, std::int64_t in_flight);
/// With the router's own count of requests that it has sent and that have not finished.
double saturation(const SaturationDetector& config, const View& view);

}  // namespace spillway::signals
