#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Filter;

/// Where the load gate of an affinity takes the time to the first token from.
enum class TtftSource : std::uint8_t { prefill_throughput, predictor };

/// Keeps requests at the instances to which most of their prompt was sent before.
struct PrefixCacheAffinity {
  double threshold = 0.8;
  double exploration = 0.01;
  std::optional<double> max_ttft_penalty_s;
  TtftSource ttft_source = TtftSource::prefill_throughput;
  double peak_prefill_tokens_per_s = 15928;

  static constexpr std::string_view kind = "prefix_cache_affinity",
                                    type_name = "PrefixCacheAffinity";
  static constexpr std::string_view doc =
      "Keeps the instances to which at least `threshold` of the prompt was sent before, by the "
      "gateway's own record; all instances if there is none, or if waiting there takes too long "
      "(llm-d's prefix-cache-affinity-filter).";
  static void fields(auto field) {
    field("threshold", &PrefixCacheAffinity::threshold,
          "Minimum share of the prompt's full blocks.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.1, 1);
    field("exploration", &PrefixCacheAffinity::exploration,
          "Probability that a request is not filtered (llm-d's default is 0).")
        .dimensionless()
        .range(sim::between(0, 1));
    field("max_ttft_penalty_s", &PrefixCacheAffinity::max_ttft_penalty_s,
          "Nothing is filtered if the shortest time to the first token on the instances with the "
          "prompt exceeds that on the others by more; unset: no such gate (llm-d since 0.9: 18 s).")
        .unit("s")
        .range(sim::positive_up_to(1e6))
        .log_search(0.1, 60);
    field("ttft_source", &PrefixCacheAffinity::ttft_source,
          "Time to the first token for this gate. prefill_throughput: prompt tokens in flight on "
          "the instance that were not sent there before ÷ peak_prefill_tokens_per_s; predictor: "
          "the predicted one.");
    field("peak_prefill_tokens_per_s", &PrefixCacheAffinity::peak_prefill_tokens_per_s,
          "Prompt tokens that an instance computes per second.")
        .unit("tokens/s")
        .range(sim::positive_up_to(1e9));
  }
  bool draws() const { return exploration > 0; }
  signals::Needs needs() const {
    const bool predicts = ttft_source == TtftSource::predictor;
    return {.prefix_index = true,
            .first_tokens = max_ttft_penalty_s && predicts,
            .in_flight_tokens = max_ttft_penalty_s && !predicts,
            .predictions = max_ttft_penalty_s && predicts};
  }
};

std::unique_ptr<Filter> make(const PrefixCacheAffinity& config);

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::TtftSource> {
  static constexpr std::array<std::string_view, 2> names{"prefill_throughput", "predictor"};
};
