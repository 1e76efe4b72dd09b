#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "signals/needs.h"
#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Decider;

/// Which requests stay out of the prefill pool: short ones, those that it is too busy for, or both.
enum class BypassRule : std::uint8_t { isl_bounding, prefill_load, isl_or_load };

/// Short prompts, and those that the prefill pool is too busy for, are computed in the decode pool.
struct Conditional {
  BypassRule rule = BypassRule::isl_bounding;
  std::int64_t uncached_tokens_threshold = 2048;
  double uncached_share_threshold = 0.7;
  std::optional<double> prefill_busy_threshold;
  std::optional<double> decode_busy_threshold;

  static constexpr std::string_view kind = "conditional", type_name = "Conditional";
  static constexpr std::string_view doc =
      "Dynamo's conditional disaggregation: asks the router of each pool which instance it would "
      "choose now, reserves nothing, and computes the prompt in the decode pool by a rule. Every "
      "comparison is strict. If the router would choose no decode instance, the prompt is computed "
      "in the prefill pool; if no prefill instance, that pool counts as busy.";
  static void fields(auto field) {
    field("rule", &Conditional::rule,
          "Which prompts are computed in the decode pool (Dynamo's policy). isl_bounding: those "
          "below both thresholds of uncached tokens; prefill_load: all while the prefill instance "
          "is busy; isl_or_load: both.");
    field("uncached_tokens_threshold", &Conditional::uncached_tokens_threshold,
          "Number of prompt tokens, without those sent to the decode instance before, below which "
          "a prompt is short (Dynamo's eff_isl_threshold).")
        .unit("tokens")
        .range(sim::between(0, 1e9))
        .log_search(128, 16384);
    field("uncached_share_threshold", &Conditional::uncached_share_threshold,
          "Share of these in the prompt below which it is short (Dynamo's "
          "eff_isl_ratio_threshold); at most 1, so that a prompt of which nothing was sent before "
          "is never short.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 1);
    field("prefill_busy_threshold", &Conditional::prefill_busy_threshold,
          "Prompt tokens to be computed, as a multiple of max_num_batched_tokens of the prefill "
          "instance, above which it is busy; required by the rules that read load.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .search(0, 16);
    field("decode_busy_threshold", &Conditional::decode_busy_threshold,
          "Blocks of prompts in flight at the decode instance, that of this request included, as a "
          "share of its KV blocks, above which the prompt is computed in the prefill pool in any "
          "case; unset: none.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0.1, 2);
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  static constexpr signals::Needs needs{.prefix_index = true};
  static constexpr bool reads_loads = true;
};

std::unique_ptr<Decider> make(const Conditional& config);

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::BypassRule> {
  static constexpr std::array<std::string_view, 3> names{"isl_bounding", "prefill_load",
                                                         "isl_or_load"};
};
