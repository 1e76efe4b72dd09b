#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

class ControllerPolicy;

/// How an additive-increase controller decreases the limit.
enum class Decrease : std::uint8_t { factor, step };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Decrease> {
  static constexpr std::array<std::string_view, 2> names{"factor", "step"};
};

namespace spillway::gateway {

/// Increases the limit by a step while the signal is below a band around the target, cuts it while
/// above.
struct Aimd {
  double target_s = 2;
  double band = 0.2;
  double increase_step = 1;
  Decrease decrease = Decrease::factor;
  double decrease_factor = 0.75;
  double decrease_step = 4;

  static constexpr std::string_view kind = "aimd", type_name = "Aimd";
  static constexpr std::string_view doc =
      "Adds increase_step while the signal is below target_s × (1 − band), cuts while it is above "
      "target_s × (1 + band), and holds in between. The controller of vllm-on-eks: the defaults "
      "are those @ 0c78403 (with a guard of floor 32, cooldown_ticks 3); decrease: step is the "
      "AISD @ 2dca487.";
  static void fields(auto field) {
    const auto steps = sim::positive_up_to(1e6);
    field("target_s", &Aimd::target_s, "Target of the signal.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.1, 10)
        .runtime();
    field("band", &Aimd::band,
          "Half-width of the band in which the limit holds, as a share of the target. A queue "
          "timeout that keeps the signal within the band freezes the limit at its current value.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 0.5)
        .runtime();
    field("increase_step", &Aimd::increase_step, "Increase per tick.")
        .unit("permits")
        .range(steps)
        .log_search(1, 16)
        .runtime();
    field("decrease", &Aimd::decrease,
          "factor: to decrease_factor × limit, in whole permits; step: by decrease_step.");
    field("decrease_factor", &Aimd::decrease_factor,
          "Share of the limit that remains after a cut by factor.")
        .dimensionless()
        .range(sim::positive_below(1))
        .search(0.3, 0.98)
        .runtime();
    field("decrease_step", &Aimd::decrease_step, "Size of a cut by step.")
        .unit("permits")
        .range(steps)
        .log_search(1, 32)
        .runtime();
  }
};

std::unique_ptr<ControllerPolicy> make(const Aimd& config, std::uint64_t seed);

}  // namespace spillway::gateway
