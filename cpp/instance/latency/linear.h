#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/ids.h"
#include "sim/schema/range.h"

namespace spillway::instance {

class LatencyModel;

/// Linear step time: ((β0 + β1·prefill tokens) + β2·decoding requests) + β3·context tokens.
struct Linear {
  double alpha0_us = 1601.350510688092;
  double alpha_input_us = 3.512476196805965;
  double alpha_output_us = 1805.5430360826988;
  double beta0_us = 6910.420479880494;
  double beta_prefill_us = 17.67057489844186;
  double beta_decode_us = 2.8377471109943855;
  double beta_context_us = 0;

  static constexpr std::string_view kind = "linear", type_name = "Linear";
  static constexpr std::string_view doc =
      "Step time linear in the work of the step: beta0 + beta_prefill·(prefill tokens) + "
      "beta_decode·(decoding requests) + beta_context·(context tokens), with overheads alpha "
      "outside the step (the \"blackbox\" model of BLIS up to 0.7.7 with its published "
      "coefficients as presets).";
  static void fields(auto field) {
    const auto nonnegative = sim::between(0, 1e12);
    field("alpha0_us", &Linear::alpha0_us,
          "Delay of every request between routing and the engine's queue.")
        .unit("us")
        .range(nonnegative);
    field("alpha_input_us", &Linear::alpha_input_us, "Part of that delay per input token.")
        .unit("us/token")
        .range(nonnegative);
    field("alpha_output_us", &Linear::alpha_output_us,
          "Cost of delivering tokens: lengthens every step that emits one (see output_overhead).")
        .unit("us")
        .range(sim::between(0, 6e7));
    field("beta0_us", &Linear::beta0_us, "Duration of an empty step.")
        .unit("us")
        .range(nonnegative);
    field("beta_prefill_us", &Linear::beta_prefill_us,
          "Time per prompt token computed in the step.")
        .unit("us/token")
        .range(nonnegative);
    field("beta_decode_us", &Linear::beta_decode_us, "Time per request that decodes in the step.")
        .unit("us/request")
        .range(nonnegative);
    field("beta_context_us", &Linear::beta_context_us,
          "Time per token of context that the step's requests have in the KV cache.")
        .unit("us/token")
        .range(nonnegative);
  }
  /// Coefficients by model, GPU and tensor parallelism: those of BLIS (`defaults.yaml`, v0.6.14)
  /// and one set fitted to published throughputs.
  static const std::vector<std::pair<std::string_view, Linear>>& presets();
};

std::unique_ptr<LatencyModel> make(const Linear& config, std::uint64_t seed, sim::InstanceId id);

}  // namespace spillway::instance
