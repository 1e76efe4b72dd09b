#pragma once

#include <cstdint>
#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

/// Sheddable requests in flight give way to more important ones that wait for a saturated fleet.
struct Eviction {
  std::int64_t max_victims = 0;
  double grace_s = 0.5;
  double timeout_s = 10;

  static constexpr std::string_view type_name = "Eviction";
  static constexpr std::string_view doc =
      "Takes sheddable requests (priority < 0) out of the instances where saturation keeps a band "
      "waiting that lies above theirs (flow control of llm-d's endpoint picker): the least "
      "important first, of equals the one dispatched last. With saturation s, the ceiling c of the "
      "band and n requests in flight, one is reckoned to bring s / n: as many are taken as bring "
      "s − c, at least one.";
  static void fields(auto field) {
    field("max_victims", &Eviction::max_victims,
          "Most requests taken by one decision (llm-d: 2); 0: what is in flight stays.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("grace_s", &Eviction::grace_s,
          "Time from when the last of a decision's victims has left until the next decision.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s))
        .search(0, 5);
    field("timeout_s", &Eviction::timeout_s,
          "Time after a decision from which the next one does not wait for its victims.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
  }
};

}  // namespace spillway::gateway
