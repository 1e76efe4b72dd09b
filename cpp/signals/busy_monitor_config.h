#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::signals {

/// New thresholds during a run. What is absent stays as it is: none can be unset.
struct BusyThresholdChange {
  double at_s = 0;
  std::optional<double> active_decode_blocks_threshold;
  std::optional<std::int64_t> active_prefill_tokens_threshold;
  std::optional<double> active_prefill_tokens_threshold_frac;

  static constexpr std::string_view type_name = "BusyThresholdChange";
  static constexpr std::string_view doc =
      "New thresholds during a run. What is absent stays as it is: none can be unset.";
  static void fields(auto field) {
    using C = BusyThresholdChange;
    field("at_s", &C::at_s, "When they are set; they take effect with the next load event.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("active_decode_blocks_threshold", &C::active_decode_blocks_threshold,
          "See the monitor; absent: as before.")
        .dimensionless()
        .range(sim::between(0, 1));
    field("active_prefill_tokens_threshold", &C::active_prefill_tokens_threshold,
          "See the monitor; absent: as before.")
        .unit("tokens")
        .range(sim::between(0, 1e12));
    field("active_prefill_tokens_threshold_frac", &C::active_prefill_tokens_threshold_frac,
          "See the monitor; absent: as before.")
        .dimensionless()
        .range(sim::between(0, 1e6));
  }
};

/// When a worker is busy.
struct BusyMonitor {
  std::optional<double> active_decode_blocks_threshold;
  std::optional<std::int64_t> active_prefill_tokens_threshold;
  std::optional<double> active_prefill_tokens_threshold_frac;
  double busy_rank_share = 1;
  bool decode_latch = true;
  bool track_output_blocks = false;
  bool router_skips_busy = true;
  std::vector<BusyThresholdChange> schedule;

  static constexpr std::string_view type_name = "BusyMonitor";
  static constexpr std::string_view doc =
      "When a worker is busy, as NVIDIA Dynamo's frontend sees it: a rank is if it exceeds any "
      "threshold, a worker if enough of its ranks are. What is seen changes only with the worker's "
      "load events: all that the gateway sees of it with signals = live, else the readings. A "
      "worker whose ingress turns a request away is busy until its next load event.";
  static void fields(auto field) {
    using M = BusyMonitor;
    field("active_decode_blocks_threshold", &M::active_decode_blocks_threshold,
          "Share of a rank's KV blocks above which it is busy (Dynamo "
          "--active-decode-blocks-threshold); absent: never.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 1)
        .runtime();
    field("active_prefill_tokens_threshold", &M::active_prefill_tokens_threshold,
          "Prompt tokens in prefill above which a rank is busy (Dynamo "
          "--active-prefill-tokens-threshold); absent: never.")
        .unit("tokens")
        .range(sim::between(0, 1e12))
        .log_search(1000, 100000)
        .runtime();
    field("active_prefill_tokens_threshold_frac", &M::active_prefill_tokens_threshold_frac,
          "The same as a multiple of the rank's max_num_batched_tokens, rounded down; absent: "
          "never.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .log_search(0.5, 64)
        .runtime();
    field("busy_rank_share", &M::busy_rank_share,
          "Share of a worker's ranks that must be busy for the worker to be: 1 for all of them "
          "(Dynamo), 0 for any.")
        .dimensionless()
        .range(sim::between(0, 1));
    field("decode_latch", &M::decode_latch,
          "Whether KV blocks count twice, by the gateway's own count and as the engine reports "
          "them: a rank is then busy once either exceeds the threshold, until the last values "
          "seen of both do not (Dynamo from 1.3 on). Without, its own count alone decides.");
    field("track_output_blocks", &M::track_output_blocks,
          "Whether the gateway's own count of KV blocks has generated tokens too (Dynamo "
          "--router-track-output-blocks), not only prompts.");
    field("router_skips_busy", &M::router_skips_busy,
          "Whether the router passes over busy workers while others are not.");
    field("schedule", &M::schedule, "Changes of the thresholds (Dynamo's POST /busy_threshold).");
  }
  bool has_thresholds() const {
    return active_decode_blocks_threshold || active_prefill_tokens_threshold ||
           active_prefill_tokens_threshold_frac || !schedule.empty();
  }
};

}  // namespace spillway::signals
