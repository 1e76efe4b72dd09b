#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "signals/busy_monitor_config.h"
#include "signals/signal_source.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::signals {

/// The values of one rank in a load event. A missing value leaves the last one in force.
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
  BusyWorkers(const BusyMonitor& config, std::size_t num_workers)
      : config_(config), workers_(num_workers) {
    for (std::size_t i = 0; i < num_workers; ++i) set_pool(sim::InstanceId{i}, WorkerPool::none);
  }
  /// To be called before the first load event.
  void set_pool(sim::InstanceId worker, WorkerPool pool) {
    workers_[worker.index()].pool = pool;
    workers_[worker.index()].thresholds = config_.thresholds_of(pool);
  }

  /// Handles a load event with the worker's ranks, by position. Events of unknown workers are
  /// ignored.
  void report(sim::InstanceId worker, std::span<const RankLoad> ranks);
  /// Takes the thresholds of `from`, which are in force from the next load event on.
  void set_thresholds(const BusyMonitor& from);
  /// The worker has rejected a request at `now`: it is busy until its next load event, or until
  /// its cooldown is over.
  void mark_overloaded(sim::InstanceId worker, sim::Time now);

  bool is_busy(sim::InstanceId worker, sim::Time now) const {
    if (worker.index() >= workers_.size()) return false;
    const Worker& its = workers_[worker.index()];
    return its.is_busy || now < its.refused_until;
  }
  bool router_skips_busy() const { return config_.router_skips_busy; }
  /// Whether any rank has exceeded a threshold so far.
  bool has_exceeded() const { return has_exceeded_; }
  /// The last known loads of the ranks; empty before the first load event.
  std::span<const RankLoad> ranks(sim::InstanceId worker) const {
    return workers_[worker.index()].loads;
  }

 private:
  struct Worker {
    std::vector<RankLoad> loads;
    BusyThresholds thresholds;
    WorkerPool pool = WorkerPool::none;
    bool is_busy = false;        // by the thresholds
    sim::Time refused_until{0};  // busy until then, because it has rejected a request
  };

  void evaluate(Worker& worker);
  bool is_rank_busy(const RankLoad& load, const BusyThresholds& thresholds) const;

  BusyMonitor config_;               // as it is at the start
  bool are_thresholds_new_ = false;  // since the last load event
  bool has_exceeded_ = false;
  std::vector<Worker> workers_;
};

/// The values read from a rank for a load event of its worker.
struct RankReading {
  InstanceSignal signal;
  Capacity capacity;
};

/// The load of the workers as a gateway knows it: its own count of the requests that it has sent to
/// them, and their reports.
///
/// A request counts at its rank from its routing on: the blocks of its prompt until it ends, the
/// tokens of its prompt until its first token.
class WorkerMonitor {
 public:
  /// The ranks of a worker and the size of their KV blocks.
  struct Size {
    std::size_t ranks = 1;
    std::int64_t block_size_tokens = 1;
    WorkerPool pool = WorkerPool::none;
  };
  WorkerMonitor(const BusyMonitor& config, std::span<const Size> workers,
                const workload::RequestTable& requests, const workload::RequestStates& states);

  // ---- requests of the gateway -------------------------------------------------------------

  void sent(sim::RequestId id, sim::InstanceId worker);
  void first_token(sim::RequestId id, sim::InstanceId worker);
  void finished(sim::RequestId id, sim::InstanceId worker);
  /// The same of a request whose prompt is computed by another worker: it has no prompt tokens
  /// here.
  void sent_to_continue(sim::RequestId id, sim::InstanceId worker);
  void finished_continuing(sim::RequestId id, sim::InstanceId worker);
  void mark_overloaded(sim::InstanceId worker, sim::Time now) {
    busy_.mark_overloaded(worker, now);
  }

  // ---- load events -------------------------------------------------------------------------

  /// Measures the worker; `ranks` has one reading per rank. With `track_output_blocks`, the states'
  /// `emitted` of the requests inside are those of now.
  void measure(sim::InstanceId worker, std::span<const RankReading> ranks);
  /// The oldest measurement in transit arrives.
  void arrive(sim::InstanceId worker);
  /// What is in transit to `other`, which has been measured as long, does not arrive here.
  void miss_in_transit(const WorkerMonitor& other);
  /// See BusyWorkers.
  void set_thresholds(const BusyMonitor& from) { busy_.set_thresholds(from); }

  const BusyWorkers& busy() const { return busy_; }

 private:
  struct Rank {
    std::int64_t prompt_tokens = 0;  // of requests inside that await their first token
    std::int64_t prompt_blocks = 0;  // of requests inside
    std::int64_t block_size_tokens = 1;
    std::vector<sim::RequestId> generating;  // inside; empty without `track_output_blocks`
  };
  struct Worker {
    std::vector<Rank> ranks;
    std::deque<std::vector<RankLoad>> in_transit;  // empty: missed
  };

  std::int64_t generated_tokens(const Rank& rank) const;
  Rank& rank_of(sim::RequestId id, sim::InstanceId worker) {
    return workers_[worker.index()].ranks[states_.rank_of(id)];
  }
  std::int64_t blocks_of(sim::RequestId id, std::int64_t block_size_tokens) const;
  // Output tokens of the request by workers that it has lost.
  std::int32_t elsewhere(sim::RequestId id) const;

  const workload::RequestTable& requests_;
  const workload::RequestStates& states_;
  bool tracks_output_;
  BusyWorkers busy_;
  std::vector<Worker> workers_;
  std::vector<char> continues_;  // by request: sent to continue; empty without pools
};

}  // namespace spillway::signals
