#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::gateway {

class ControllerPolicy;

/// Proportional, integral and differential control of the limit's logarithm.
struct Pid {
  double target_s = 2;
  double kp = 0.2;
  double ki_per_s = 0.01;
  double kd_s = 0;
  double largest_rise = 0.2;
  double largest_cut = 0.7;

  static constexpr std::string_view kind = "pid", type_name = "Pid";
  static constexpr std::string_view doc =
      "A PID controller in velocity form: with the error e = ln(target_s / signal) at this tick "
      "and the two before, the limit is multiplied by exp(kp·(e − e₁) + ki·T·e + kd·(e − 2e₁ + e₂) "
      "/ T), where T is the time since the last tick and the exponent is clamped to [−largest_cut, "
      "largest_rise]. The integral pauses while there is no demand, and in the direction in which "
      "the last move was not granted in full.";
  static void fields(auto field) {
    field("target_s", &Pid::target_s, "Target of the signal.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.1, 10)
        .runtime();
    field("kp", &Pid::kp, "Gain of the error's change.")
        .dimensionless()
        .range(sim::between(0, 100))
        .search(0, 1)
        .runtime();
    field("ki_per_s", &Pid::ki_per_s,
          "Gain of the error. The delay from a change of the limit to its effect on the signal "
          "(the window and the requests in flight) bounds it from above.")
        .unit("1/s")
        .range(sim::between(0, 100))
        .log_search(0.001, 0.1)
        .runtime();
    field("kd_s", &Pid::kd_s, "Gain of the change of the error's change.")
        .unit("s")
        .range(sim::between(0, 1000))
        .search(0, 5)
        .runtime();
    field("largest_rise", &Pid::largest_rise,
          "Maximum rise per tick of the limit's natural logarithm.")
        .dimensionless()
        .range(sim::positive_up_to(10))
        .search(0.02, 0.5)
        .runtime();
    field("largest_cut", &Pid::largest_cut,
          "Maximum cut per tick of the limit's natural logarithm.")
        .dimensionless()
        .range(sim::positive_up_to(10))
        .search(0.1, 2)
        .runtime();
  }
};

std::unique_ptr<ControllerPolicy> make(const Pid& config, std::uint64_t seed);

}  // namespace spillway::gateway
