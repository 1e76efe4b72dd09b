#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::signals {

/// The workers for which thresholds hold: of no pool of their own, or of one.
enum class WorkerPool : std::uint8_t { none, prefill, decode };

/// Above what a rank is busy; unset: never.
struct BusyThresholds {
  std::optional<double> active_decode_blocks;
  std::optional<std::int64_t> active_prefill_tokens;
  std::optional<double> active_prefill_tokens_frac;

  bool operator==(const BusyThresholds&) const = default;
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
  std::optional<double> overload_cooldown_s;
  std::optional<double> prefill_pool_decode_blocks_threshold;
  std::optional<std::int64_t> prefill_pool_prefill_tokens_threshold;
  std::optional<double> prefill_pool_prefill_tokens_threshold_frac;
  std::optional<double> decode_pool_decode_blocks_threshold;
  std::optional<std::int64_t> decode_pool_prefill_tokens_threshold;
  std::optional<double> decode_pool_prefill_tokens_threshold_frac;

  static constexpr std::string_view type_name = "BusyMonitor";
  static constexpr std::string_view doc =
      "When a worker is busy, by the rules of NVIDIA Dynamo's frontend: a rank is busy if it "
      "exceeds any threshold, a worker if enough of its ranks are busy. The state changes only "
      "with the worker's load events: with signals = live all that the gateway sees of the worker, "
      "otherwise the readings. A worker whose ingress rejects a request is busy until its next "
      "load event, or for overload_cooldown_s if that is shorter.";
  static void fields(auto field) {
    using M = BusyMonitor;
    field("active_decode_blocks_threshold", &M::active_decode_blocks_threshold,
          "Share of a rank's KV blocks above which it is busy (Dynamo "
          "--active-decode-blocks-threshold); unset: never.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 1)
        .runtime();
    field("active_prefill_tokens_threshold", &M::active_prefill_tokens_threshold,
          "Prompt tokens in prefill above which a rank is busy (Dynamo "
          "--active-prefill-tokens-threshold); unset: never.")
        .unit("tokens")
        .range(sim::between(0, 1e12))
        .log_search(1000, 100000)
        .runtime();
    field("active_prefill_tokens_threshold_frac", &M::active_prefill_tokens_threshold_frac,
          "The same threshold as a multiple of the rank's max_num_batched_tokens, rounded down; "
          "unset: never.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .log_search(0.5, 64)
        .runtime();
    field("busy_rank_share", &M::busy_rank_share,
          "Share of a worker's ranks that must be busy for the worker to be busy: 1 for all of "
          "them (Dynamo), 0 for any.")
        .dimensionless()
        .range(sim::between(0, 1));
    field(
        "decode_latch", &M::decode_latch,
        "Whether two counts of KV blocks are used, the gateway's own and the engine's: a rank then "
        "becomes busy when either exceeds the threshold, and stays busy until the last values of "
        "both do not (Dynamo from 1.3 on). Otherwise the gateway's own count alone decides.");
    field("track_output_blocks", &M::track_output_blocks,
          "Whether the gateway's own count of KV blocks includes generated tokens (Dynamo "
          "--router-track-output-blocks), not only prompts.");
    field("router_skips_busy", &M::router_skips_busy,
          "Whether the router skips busy workers while any worker is not busy.");
    field("overload_cooldown_s", &M::overload_cooldown_s,
          "Time for which a worker whose ingress has rejected a request is busy, unless a load "
          "event comes before (1 s in Dynamo's newer versions); then it is busy if it exceeded a "
          "threshold at its last load event. Unset: until its next load event.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.1, 10);
    field(
        "prefill_pool_decode_blocks_threshold", &M::prefill_pool_decode_blocks_threshold,
        "active_decode_blocks_threshold of instances with role prefill; unset: the shared one, as "
        "in Dynamo.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 1)
        .runtime();
    field("prefill_pool_prefill_tokens_threshold", &M::prefill_pool_prefill_tokens_threshold,
          "active_prefill_tokens_threshold of instances with role prefill; unset: the shared one.")
        .unit("tokens")
        .range(sim::between(0, 1e12))
        .log_search(1000, 100000)
        .runtime();
    field("prefill_pool_prefill_tokens_threshold_frac",
          &M::prefill_pool_prefill_tokens_threshold_frac,
          "active_prefill_tokens_threshold_frac of instances with role prefill; unset: the shared "
          "one.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .log_search(0.5, 64)
        .runtime();
    field("decode_pool_decode_blocks_threshold", &M::decode_pool_decode_blocks_threshold,
          "active_decode_blocks_threshold of instances with role decode; unset: the shared one.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 1)
        .runtime();
    field("decode_pool_prefill_tokens_threshold", &M::decode_pool_prefill_tokens_threshold,
          "active_prefill_tokens_threshold of instances with role decode; unset: the shared one.")
        .unit("tokens")
        .range(sim::between(0, 1e12))
        .log_search(1000, 100000)
        .runtime();
    field("decode_pool_prefill_tokens_threshold_frac",
          &M::decode_pool_prefill_tokens_threshold_frac,
          "active_prefill_tokens_threshold_frac of instances with role decode; unset: the shared "
          "one.")
        .dimensionless()
        .range(sim::between(0, 1e6))
        .log_search(0.5, 64)
        .runtime();
  }
  /// The thresholds of a pool: its own, or else the shared ones.
  BusyThresholds thresholds_of(WorkerPool pool) const {
    BusyThresholds own{active_decode_blocks_threshold, active_prefill_tokens_threshold,
                       active_prefill_tokens_threshold_frac};
    const auto overwrite = [](auto& threshold, const auto& with) {
      if (with) threshold = with;
    };
    if (pool == WorkerPool::prefill) {
      overwrite(own.active_decode_blocks, prefill_pool_decode_blocks_threshold);
      overwrite(own.active_prefill_tokens, prefill_pool_prefill_tokens_threshold);
      overwrite(own.active_prefill_tokens_frac, prefill_pool_prefill_tokens_threshold_frac);
    } else if (pool == WorkerPool::decode) {
      overwrite(own.active_decode_blocks, decode_pool_decode_blocks_threshold);
      overwrite(own.active_prefill_tokens, decode_pool_prefill_tokens_threshold);
      overwrite(own.active_prefill_tokens_frac, decode_pool_prefill_tokens_threshold_frac);
    }
    return own;
  }
  bool has_thresholds() const {
    for (const WorkerPool pool : {WorkerPool::none, WorkerPool::prefill, WorkerPool::decode}) {
      if (thresholds_of(pool) != BusyThresholds{}) return true;
    }
    return false;
  }
};

}  // namespace spillway::signals
