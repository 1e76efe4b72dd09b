#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

class ControllerPolicy;

/// Grows and shrinks in proportion to the limit.
struct Mimd {
  double target_s = 2;
  double band = 0.2;
  double increase_ratio = 0.02;
  double decrease_ratio = 0.1;

  static constexpr std::string_view kind = "mimd", type_name = "Mimd";
  static constexpr std::string_view doc =
      "Multiplies the limit by 1 + increase_ratio while the signal is below target_s × (1 − band), "
      "by 1 − decrease_ratio while it is above target_s × (1 + band), and holds in between: the "
      "same relative speed at every size. TopFull's baseline is target_s 1, band 0, ratios 0.01 "
      "and 0.05.";
  static void fields(auto field) {
    field("target_s", &Mimd::target_s, "Target of the signal.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.1, 10)
        .runtime();
    field("band", &Mimd::band,
          "Half-width of the band in which the limit holds, as a share of the target.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 0.5)
        .runtime();
    field("increase_ratio", &Mimd::increase_ratio, "Growth per tick, as a share of the limit.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .log_search(0.01, 0.1)
        .runtime();
    field("decrease_ratio", &Mimd::decrease_ratio, "Cut per tick, as a share of the limit.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .log_search(0.02, 0.5)
        .runtime();
  }
};

std::unique_ptr<ControllerPolicy> make(const Mimd& config, std::uint64_t seed);

}  // namespace spillway::gateway
