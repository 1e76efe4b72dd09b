#pragma once

#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"
#include "sim/value.h"

namespace spillway::cluster {

/// Settings that change during a run.
struct Change {
  double at_s = 0;
  sim::Value set{sim::Value::Map{}};

  static constexpr std::string_view type_name = "Change";
  static constexpr std::string_view doc =
      "Settings that change during a run, as an operator changes those of a running deployment. "
      "Only settings that are marked as changeable can change.";
  static void fields(auto field) {
    field("at_s", &Change::at_s,
          "Time of the change, before the ticks, the arrivals and the dispatches of that instant.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field(
        "set", &Change::set,
        "New values by path, e.g. {gateway.limit[0].max_in_flight: 12, tenants[gold].weight: 3}.");
  }
};

}  // namespace spillway::cluster
