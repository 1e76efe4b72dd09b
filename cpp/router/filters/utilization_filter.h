#pragma once

#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::router {

class Filter;

/// Removes instances that report a long queue or full KV memory.
struct UtilizationFilter {
  double queue_depth_threshold = 5;
  double kv_utilization_threshold = 0.8;
  double headroom = 0;

  static constexpr std::string_view kind = "utilization", type_name = "UtilizationFilter";
  static constexpr std::string_view doc =
      "Keeps the instances whose queue and KV memory are below their thresholds, each multiplied "
      "by 1 + headroom, and whose signals are not stale; all instances if there is none (the "
      "filter of llm-d's utilization-detector).";
  static void fields(auto field) {
    field("queue_depth_threshold", &UtilizationFilter::queue_depth_threshold,
          "Number of waiting requests at which an instance is full.")
        .unit("requests")
        .range(sim::positive_up_to(1e9))
        .log_search(1, 64);
    field("kv_utilization_threshold", &UtilizationFilter::kv_utilization_threshold,
          "Share of KV memory in use at which an instance is full.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.5, 1);
    field("headroom", &UtilizationFilter::headroom,
          "Relative excess of the thresholds that is still allowed.")
        .dimensionless()
        .range(sim::between(0, 1000));
  }
};

std::unique_ptr<Filter> make(const UtilizationFilter& config);

}  // namespace spillway::router
