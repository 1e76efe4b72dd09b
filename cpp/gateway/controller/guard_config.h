#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

/// What counts as demand.
enum class Demand : std::uint8_t { in_flight_or_queued, queued_only };
/// How a limit becomes one that is in force.
enum class Rounding : std::uint8_t { floor, nearest, none };
/// How floor and ceiling bind a limit that starts outside of them.
enum class Clamps : std::uint8_t { corrected, verbatim };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Demand> {
  static constexpr std::array<std::string_view, 2> names{"in_flight_or_queued", "queued_only"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::Rounding> {
  static constexpr std::array<std::string_view, 3> names{"floor", "nearest", "none"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::Clamps> {
  static constexpr std::array<std::string_view, 2> names{"corrected", "verbatim"};
};

namespace spillway::gateway {

/// Bounds of what a controller may do with a limit.
struct Guard {
  double floor = 1;
  double ceiling = 1024;
  bool demand_gate = true;
  Demand demand = Demand::in_flight_or_queued;
  std::int64_t cooldown_ticks = 0;
  Rounding rounding = Rounding::floor;
  Clamps clamps = Clamps::corrected;

  static constexpr std::string_view type_name = "Guard";
  static constexpr std::string_view doc =
      "Bounds of what a controller may do with a limit, whichever controller it is.";
  static void fields(auto field) {
    const auto limits = sim::between(0, 1e9);
    field("floor", &Guard::floor,
          "The limit is not cut below this; 0: it may be cut to nothing, and then only a "
          "controller "
          "that needs no samples, or a signal that needs no requests, raises it again.")
        .unit("permits")
        .range(limits)
        .log_search(1, 64);
    field("ceiling", &Guard::ceiling, "The limit does not rise above this.")
        .unit("permits")
        .range(limits)
        .log_search(64, 4096);
    field("demand_gate", &Guard::demand_gate,
          "Whether the limit only rises while there is demand.");
    field("demand", &Guard::demand,
          "What demand is. With queued_only, queues so short that they are empty at most ticks "
          "keep a limit from ever rising.");
    field("cooldown_ticks", &Guard::cooldown_ticks,
          "So many ticks with a signal pass after a cut before the controller is asked again. "
          "Below the sensor's window, the same samples cut twice.")
        .unit("ticks")
        .range(sim::between(0, 1e6))
        .search(0, 10);
    field("rounding", &Guard::rounding,
          "What becomes of fractions in the limit that is in force. The controller goes on "
          "from the unrounded one.");
    field("clamps", &Guard::clamps,
          "corrected: a limit that starts outside of floor and ceiling only moves as the "
          "controller wants; verbatim: a rise from above the ceiling falls to it, a cut from "
          "below the floor rises to it, as in vllm-on-eks @ 0c78403.");
  }
};

}  // namespace spillway::gateway
