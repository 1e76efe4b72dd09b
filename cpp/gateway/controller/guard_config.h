#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

/// The definition of demand.
enum class Demand : std::uint8_t { in_flight_or_queued, queued_only };
/// How the limit in force is rounded.
enum class Rounding : std::uint8_t { floor, nearest, none };
/// How floor and ceiling apply to a limit that starts outside of them.
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

/// Bounds on the moves of a controller.
struct Guard {
  double floor = 1;
  double ceiling = 1024;
  bool demand_gate = true;
  Demand demand = Demand::in_flight_or_queued;
  std::int64_t cooldown_ticks = 0;
  Rounding rounding = Rounding::floor;
  Clamps clamps = Clamps::corrected;

  static constexpr std::string_view type_name = "Guard";
  static constexpr std::string_view doc = "Bounds on the moves of any controller.";
  static void fields(auto field) {
    const auto limits = sim::between(0, 1e9);
    field("floor", &Guard::floor,
          "Minimum of the limit; 0: the limit may be cut to 0, and then only a controller without "
          "samples, or a signal without requests, can raise it again.")
        .unit("permits")
        .range(limits)
        .log_search(1, 64)
        .runtime();
    field("ceiling", &Guard::ceiling, "Maximum of the limit.")
        .unit("permits")
        .range(limits)
        .log_search(64, 4096)
        .runtime();
    field("demand_gate", &Guard::demand_gate,
          "Whether the limit rises only while there is demand.");
    field("demand", &Guard::demand,
          "Definition of demand. With queued_only, a limit never rises if the queues are so short "
          "that they are empty at most ticks.");
    field("cooldown_ticks", &Guard::cooldown_ticks,
          "Number of ticks with a signal after a cut during which the limit holds. With a cooldown "
          "shorter than the sensor's window, the same samples can cut twice.")
        .unit("ticks")
        .range(sim::between(0, 1e6))
        .search(0, 10)
        .runtime();
    field("rounding", &Guard::rounding,
          "Rounding of the limit in force. The controller continues from the unrounded limit.");
    field("clamps", &Guard::clamps,
          "corrected: a limit that starts outside of floor and ceiling moves only in the "
          "controller's direction; verbatim: an increase from above the ceiling sets the limit to "
          "the ceiling, and a cut from below the floor sets it to the floor, as in vllm-on-eks @ "
          "0c78403.");
  }
};

}  // namespace spillway::gateway
