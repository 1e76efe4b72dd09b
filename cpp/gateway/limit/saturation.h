#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>

#include "gateway/limit/limit.h"
#include "sim/field.h"

namespace spillway::gateway {

/// What saturation is made of.
enum class Detector : std::uint8_t { utilization, concurrency };

/// Requests go while the fleet is less saturated than the band's ceiling.
struct Saturation {
  Detector detector = Detector::utilization;
  double queue_depth_threshold = 5;
  double kv_utilization_threshold = 0.8;
  double max_concurrency = 100;

  static constexpr std::string_view kind = "saturation", type_name = "Saturation";
  static constexpr std::string_view doc =
      "Requests of a band go while the saturation of the fleet is below the band's ceiling (flow "
      "control of llm-d's endpoint picker). utilization: mean over the instances of the larger of "
      "waiting ÷ queue_depth_threshold and KV use ÷ kv_utilization_threshold, 1 for an instance "
      "whose signals are stale; concurrency: requests dispatched and not finished ÷ "
      "(max_concurrency × instances).";
  static constexpr auto fields();
};

std::unique_ptr<LimitPolicy> make(const Saturation& config);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Detector> {
  static constexpr std::array<std::string_view, 2> names{"utilization", "concurrency"};
};

namespace spillway::gateway {

constexpr auto Saturation::fields() {
  using sim::field;
  return std::tuple(
      field("detector", &Saturation::detector,
            "utilization, of what the instances report, or concurrency, which the gateway counts "
            "itself."),
      field("queue_depth_threshold", &Saturation::queue_depth_threshold,
            "Waiting requests that saturate an instance.")
          .unit("requests")
          .range(sim::positive_up_to(1e9))
          .log_search(1, 64),
      field("kv_utilization_threshold", &Saturation::kv_utilization_threshold,
            "Share of KV memory in use that saturates an instance.")
          .range(sim::positive_up_to(1))
          .search(0.5, 1),
      field("max_concurrency", &Saturation::max_concurrency,
            "Requests in flight per instance that saturate the fleet.")
          .unit("requests")
          .range(sim::positive_up_to(1e9))
          .log_search(8, 1024));
}

}  // namespace spillway::gateway
