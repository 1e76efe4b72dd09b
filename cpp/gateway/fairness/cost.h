#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

/// The unit of a cost.
enum class CostUnit : std::uint8_t { requests, prompt_tokens, uncached_tokens, weighted_tokens };
/// The assumed length of an output before it is known.
enum class OutputEstimate : std::uint8_t { none, mean, oracle, predicted };
/// When the cost is charged.
enum class ChargeAt : std::uint8_t { enqueue, dispatch, first_token, token, completion };

/// The cost of a request to its tenant, and when it is charged.
struct Cost {
  CostUnit unit = CostUnit::requests;
  double prompt_weight = 1;
  double output_weight = 2;
  OutputEstimate output_estimate = OutputEstimate::none;
  double estimate_bias = 1;
  ChargeAt charge_at = ChargeAt::dispatch;
  bool settles = false;

  static constexpr std::string_view type_name = "Cost";
  static constexpr std::string_view doc =
      "The cost of a request to its tenant, and when it is charged.";
  static void fields(auto field) {
    field("unit", &Cost::unit,
          "requests: 1 each; prompt_tokens; uncached_tokens: prompt tokens without a match in the "
          "gateway's own record of sent prefixes; weighted_tokens: prompt_weight × prompt + "
          "output_weight × output tokens.");
    field("prompt_weight", &Cost::prompt_weight, "Cost of a prompt token (weighted_tokens only).")
        .dimensionless()
        .range(sim::between(0, 1e9));
    field("output_weight", &Cost::output_weight, "Cost of an output token (weighted_tokens only).")
        .dimensionless()
        .range(sim::between(0, 1e9));
    field(
        "output_estimate", &Cost::output_estimate,
        "Output tokens assumed by a charge before they are emitted. none: 0; mean: the average of "
        "the tenant's completed requests; oracle: the true number, which no real gateway knows; "
        "predicted: by length_prediction.");
    field("estimate_bias", &Cost::estimate_bias,
          "Factor on the estimated output, to model a biased predictor.")
        .dimensionless()
        .range(sim::between(0, 1000));
    field("charge_at", &Cost::charge_at,
          "When the cost is charged. token: the prompt at dispatch, the output token by token.");
    field("settles", &Cost::settles,
          "Whether completion corrects an estimated charge. A request that leaves its queue "
          "without being dispatched is refunded in any case.");
  }
  /// Whether any charge includes an estimated output.
  bool estimates_output() const {
    return unit == CostUnit::weighted_tokens && output_weight > 0 && estimate_bias > 0 &&
           charge_at != ChargeAt::token && charge_at != ChargeAt::completion;
  }
  signals::Needs needs() const {
    return {.prefix_index = unit == CostUnit::uncached_tokens,
            .first_tokens = charge_at == ChargeAt::first_token,
            .tokens_by_group = charge_at == ChargeAt::token && unit == CostUnit::weighted_tokens,
            .output_lengths = output_estimate == OutputEstimate::predicted && estimates_output()};
  }
};

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::CostUnit> {
  static constexpr std::array<std::string_view, 4> names{"requests", "prompt_tokens",
                                                         "uncached_tokens", "weighted_tokens"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::OutputEstimate> {
  static constexpr std::array<std::string_view, 4> names{"none", "mean", "oracle", "predicted"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::ChargeAt> {
  static constexpr std::array<std::string_view, 5> names{"enqueue", "dispatch", "first_token",
                                                         "token", "completion"};
};
