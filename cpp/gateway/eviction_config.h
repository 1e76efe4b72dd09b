#pragma once

#include <cstdint>
#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

/// Evicts sheddable requests in flight in favor of more important ones that wait for a saturated
/// fleet.
struct Eviction {
  std::int64_t max_victims = 0;
  double grace_s = 0.5;
  double timeout_s = 10;

  static constexpr std::string_view type_name = "Eviction";
  static constexpr std::string_view doc =
      "Evicts sheddable requests (priority < 0) from the instances while saturation keeps a band "
      "of higher priority waiting (flow control of llm-d's endpoint picker): the least important "
      "first, of equals the one dispatched last. With saturation s, the ceiling c of the band and "
      "n requests in flight, each request is assumed to contribute s / n: as many are evicted as "
      "contribute s − c, at least one.";
  static void fields(auto field) {
    field("max_victims", &Eviction::max_victims,
          "Maximum number of requests evicted by one decision (llm-d: 2); 0: no eviction.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("grace_s", &Eviction::grace_s,
          "Time from the departure of a decision's last victim to the next decision.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s))
        .search(0, 5);
    field("timeout_s", &Eviction::timeout_s,
          "Maximum time for which the next decision waits for the victims to leave.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
  }
};

}  // namespace spillway::gateway
