#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/ids.h"
#include "sim/schema/range.h"

namespace spillway::instance {

class LatencyModel;

/// Step time from a table of measured or computed steps.
///
/// The defaults are those of the default `Roofline`, at the corners of a small grid.
struct StepTable {
  double alpha0_us = 5000;
  double alpha_input_us = 0;
  double alpha_output_us = 0;
  std::vector<double> decode_requests{0, 64};
  std::vector<double> prefill_tokens{0, 512};
  std::vector<double> context_tokens{0, 4096};
  std::vector<double> step_us{6748, 6748, 13489, 13489, 9135, 18293, 17244, 26402};
  double prefill_context_us = 0.00082283383994566;
  double decode_scale = 1;
  double prefill_scale = 1;

  static constexpr std::string_view kind = "step_table", type_name = "StepTable";
  static constexpr std::string_view doc =
      "Step time from a table over D decoding requests, n prompt tokens and c tokens of context of "
      "a decoding request (their mean), linear in each of the three between the table's values and "
      "continued beyond them, but never below 0: decode_scale·T(D, 0, c) + prefill_scale·(T(D, n, "
      "c) − T(D, 0, c)) + prefill_context·(pairs of a prompt token and one computed in an earlier "
      "step). The mean context makes the step time linear in the number of tokens that decoding "
      "requests read. A table does not say how many requests share the prompt tokens.";
  static void fields(auto field) {
    const auto nonnegative = sim::between(0, 1e12);
    const auto axis = sim::between(0, 1e9);
    field("alpha0_us", &StepTable::alpha0_us,
          "Delay of every request between routing and the engine's queue.")
        .unit("us")
        .range(nonnegative);
    field("alpha_input_us", &StepTable::alpha_input_us, "Part of that delay per input token.")
        .unit("us/token")
        .range(nonnegative);
    field("alpha_output_us", &StepTable::alpha_output_us,
          "Cost of delivering tokens: lengthens every step that emits one (see output_overhead).")
        .unit("us")
        .range(sim::between(0, 6e7));
    field("decode_requests", &StepTable::decode_requests,
          "Numbers of decoding requests of the table, ascending.")
        .unit("requests")
        .range(axis);
    field("prefill_tokens", &StepTable::prefill_tokens,
          "Numbers of prompt tokens computed in a step, ascending.")
        .unit("tokens")
        .range(axis);
    field("context_tokens", &StepTable::context_tokens,
          "Contexts of a decoding request, ascending; steps without one use the first.")
        .unit("tokens")
        .range(axis);
    field("step_us", &StepTable::step_us,
          "Durations: for each number of decoding requests, for each number of prompt tokens, one "
          "for each context.")
        .unit("us")
        .range(nonnegative);
    field("prefill_context_us", &StepTable::prefill_context_us,
          "Time per pair of a prompt token that is computed and one computed before this step: "
          "attention behind a cached prefix or an earlier chunk, which the table does not know.")
        .unit("us")
        .range(nonnegative);
    field("decode_scale", &StepTable::decode_scale,
          "Factor on the table's steps without prompts; calibration sets it.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .search(0.5, 2);
    field("prefill_scale", &StepTable::prefill_scale,
          "Factor on what prompt tokens add to a step; calibration sets it.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .search(0.5, 2);
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<LatencyModel> make(const StepTable& config, std::uint64_t seed, sim::InstanceId id);

}  // namespace spillway::instance
