#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::signals {

class View;

/// How saturation is measured.
enum class Detector : std::uint8_t { utilization, concurrency };
/// What a gateway counts in flight.
enum class ConcurrencyMode : std::uint8_t { requests, tokens, hybrid };
/// With prefill and decode pools, whose saturation counts.
enum class Across : std::uint8_t { max, prefill, decode, any };
/// How instances count whose metrics are stale.
enum class StalenessPolicy : std::uint8_t { saturated, ignore };

}  // namespace spillway::signals

template <>
struct spillway::sim::EnumNames<spillway::signals::Detector> {
  static constexpr std::array<std::string_view, 2> names{"utilization", "concurrency"};
};
template <>
struct spillway::sim::EnumNames<spillway::signals::ConcurrencyMode> {
  static constexpr std::array<std::string_view, 3> names{"requests", "tokens", "hybrid"};
};
template <>
struct spillway::sim::EnumNames<spillway::signals::Across> {
  static constexpr std::array<std::string_view, 4> names{"max", "prefill", "decode", "any"};
};
template <>
struct spillway::sim::EnumNames<spillway::signals::StalenessPolicy> {
  static constexpr std::array<std::string_view, 2> names{"saturated", "ignore"};
};

namespace spillway::signals {

/// The saturation of the fleet, 1 where it is full: settings shared by all policies that depend on
/// it.
struct SaturationDetector {
  Detector detector = Detector::utilization;
  double queue_depth_threshold = 5;
  double kv_utilization_threshold = 0.8;
  StalenessPolicy staleness_policy = StalenessPolicy::saturated;
  double max_concurrency = 100;
  ConcurrencyMode concurrency_mode = ConcurrencyMode::requests;
  double max_token_concurrency = 1'000'000;
  Across across = Across::max;

  static void fields(auto field) {
    using Self = SaturationDetector;
    field("detector", &Self::detector,
          "utilization: from the metrics that the instances report; concurrency: from the "
          "gateway's own count.");
    field("queue_depth_threshold", &Self::queue_depth_threshold,
          "Number of waiting requests at which an instance is saturated.")
        .unit("requests")
        .range(sim::positive_up_to(1e9))
        .log_search(1, 64)
        .runtime();
    field("kv_utilization_threshold", &Self::kv_utilization_threshold,
          "Share of KV memory in use at which an instance is saturated.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.5, 1)
        .runtime();
    field("staleness_policy", &Self::staleness_policy,
          "How the utilization detector counts an instance whose metrics are stale "
          "(llm-d-router#2408). saturated: as 1, so a fleet that cannot be seen gets nothing; "
          "ignore: not at all, and a fleet of such instances as 0.");
    field("max_concurrency", &Self::max_concurrency,
          "Requests in flight per instance at which the fleet is saturated.")
        .unit("requests")
        .range(sim::positive_up_to(1e9))
        .log_search(8, 1024)
        .runtime();
    field(
        "concurrency_mode", &Self::concurrency_mode,
        "What the concurrency detector counts. requests; tokens: prompt tokens of the requests in "
        "flight that were not sent to the instance before; hybrid: of each instance the one "
        "nearer to its limit.");
    field("max_token_concurrency", &Self::max_token_concurrency,
          "Prompt tokens in flight per instance at which the fleet is saturated.")
        .unit("tokens")
        .range(sim::positive_up_to(1e12))
        .log_search(1e4, 1e7)
        .runtime();
    field("across", &Self::across,
          "With prefill and decode pools, whose saturation counts. max: that of the more saturated "
          "pool, so that either stops all requests (llm-d); prefill, decode: of this pool; any: of "
          "all instances together. A group of role both is part of both pools.");
  }
  /// Whether tokens in flight are counted.
  bool counts_tokens() const {
    return detector == Detector::concurrency && concurrency_mode != ConcurrencyMode::requests;
  }
  Needs token_needs() const {
    return {.prefix_index = counts_tokens(), .in_flight_tokens = counts_tokens()};
  }
};

/// utilization: mean over the instances of the larger of waiting ÷ queue_depth_threshold and KV use
/// ÷ kv_utilization_threshold, those whose signals are stale by `staleness_policy`. concurrency:
/// `in_flight` ÷ (max_concurrency × instances), or by the tokens that the router has sent. 1 while
/// no instance is ready. With pools by `across`; a request then counts in each pool in which it has
/// been routed, and in both before.
double saturation(const SaturationDetector& config, const View& view, std::int64_t in_flight);
/// With the router's own count of requests that it has sent and that have not finished.
double saturation(const SaturationDetector& config, const View& view);

}  // namespace spillway::signals
