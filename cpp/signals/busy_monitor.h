#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "signals/probe.h"
#include "sim/ids.h"
#include "sim/schema/field.h"
#include "sim/time.h"
#include "workload/journal.h"
#include "workload/request_table.h"

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

/// What a rank tells with a load event. What is absent is not told: the last value stands.
struct RankLoad {
  std::optional<std::int64_t> active_decode_blocks;  ///< by the gateway's own count
  std::optional<std::int64_t> kv_used_blocks;        ///< as the engine reports
  std::optional<std::int64_t> kv_total_blocks;
  std::optional<std::int64_t> active_prefill_tokens;  ///< by the gateway's own count
  std::optional<std::int64_t> max_num_batched_tokens;
};

/// Which workers are busy, from the load events so far.
class BusyWorkers {
 public:
  BusyWorkers(BusyMonitor config, std::size_t num_workers);

  /// A load event: the worker tells of its ranks, by position. Of an unknown worker: ignored.
  void report(sim::InstanceId worker, std::span<const RankLoad> ranks, sim::Time now);
  /// It has turned a request away: busy until its next load event.
  void mark_overloaded(sim::InstanceId worker);

  bool is_busy(sim::InstanceId worker) const {
    return worker.index() < workers_.size() && workers_[worker.index()].is_busy;
  }
  bool router_skips_busy() const { return config_.router_skips_busy; }
  /// Whether any rank has exceeded a threshold so far.
  bool has_exceeded() const { return has_exceeded_; }
  /// What is known of the ranks; empty before the first load event.
  std::span<const RankLoad> ranks(sim::InstanceId worker) const {
    return workers_[worker.index()].loads;
  }

 private:
  struct Worker {
    std::vector<RankLoad> loads;
    bool is_busy = false;
  };

  // Whether a threshold has changed by now.
  bool apply_changes(sim::Time now);
  void evaluate(Worker& worker);
  bool is_rank_busy(const RankLoad& load) const;

  BusyMonitor config_;  // with the thresholds in force
  std::size_t next_change_ = 0;
  bool has_exceeded_ = false;
  std::vector<Worker> workers_;
};

/// What is read of a rank when its worker has a load event.
struct RankReading {
  InstanceSignal signal;
  Capacity capacity;
  std::int64_t emitted_tokens = 0;  ///< since the start; only with `track_output_blocks`
};

/// What a gateway knows of the load of the workers: its own count of the requests that it has sent
/// them, and what they report.
///
/// A request counts at its rank from when it is routed: with the blocks of its prompt until it
/// ends, with its prompt's tokens until its first token.
class WorkerMonitor {
 public:
  /// A worker by its ranks and their KV blocks.
  struct Size {
    std::size_t ranks = 1;
    std::int64_t block_size_tokens = 1;
  };
  WorkerMonitor(const BusyMonitor& config, std::span<const Size> workers,
                const workload::RequestTable& requests, const workload::Journal& journal);

  // ---- what the gateway sees ---------------------------------------------------------------

  void sent(sim::RequestId id, sim::InstanceId worker);
  void first_token(sim::RequestId id, sim::InstanceId worker);
  void finished(sim::RequestId id, sim::InstanceId worker);
  void mark_overloaded(sim::InstanceId worker) { busy_.mark_overloaded(worker); }

  // ---- load events -------------------------------------------------------------------------

  /// The worker is read; the readings are one per rank.
  void measure(sim::InstanceId worker, std::span<const RankReading> ranks);
  /// The oldest measurement that has not arrived yet does.
  void arrive(sim::InstanceId worker, sim::Time now);

  const BusyWorkers& busy() const { return busy_; }

 private:
  struct Rank {
    std::int64_t prompt_tokens = 0;  // of requests inside that await their first token
    std::int64_t prompt_blocks = 0;  // of requests inside
    std::int64_t ended_tokens = 0;   // emitted by requests that have ended
    std::int64_t block_size_tokens = 1;
  };
  struct Worker {
    std::vector<Rank> ranks;
    std::deque<std::vector<RankLoad>> on_their_way;
  };

  Rank& rank_of(sim::RequestId id, sim::InstanceId worker) {
    return workers_[worker.index()].ranks[journal_.rank_of(id)];
  }
  std::int64_t blocks_of(sim::RequestId id, std::int64_t block_size_tokens) const;

  const workload::RequestTable& requests_;
  const workload::Journal& journal_;
  bool tracks_output_;
  BusyWorkers busy_;
  std::vector<Worker> workers_;
};

}  // namespace spillway::signals
