#include "signals/busy_monitor.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spillway::signals {

using sim::InstanceId;
using sim::RequestId;

namespace {

/// Batch limit of a worker that has not reported one.
constexpr std::int64_t kUnreportedBatch_tokens = 10'000'000;

void overwrite(std::optional<std::int64_t>& stored, const std::optional<std::int64_t>& with) {
  if (with) stored = with;
}

bool exceeds(const std::optional<std::int64_t>& value, double limit) {
  return value && static_cast<double>(*value) > limit;
}

}  // namespace

// ---- which workers are busy ----------------------------------------------------------------

void BusyWorkers::report(InstanceId worker, std::span<const RankLoad> ranks) {
  if (worker.index() >= workers_.size()) return;
  Worker& its = workers_[worker.index()];
  its.refused_until = sim::Time{0};
  if (its.loads.size() < ranks.size()) its.loads.resize(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    RankLoad& load = its.loads[i];
    overwrite(load.active_decode_blocks, ranks[i].active_decode_blocks);
    overwrite(load.kv_used_blocks, ranks[i].kv_used_blocks);
    overwrite(load.kv_total_blocks, ranks[i].kv_total_blocks);
    overwrite(load.active_prefill_tokens, ranks[i].active_prefill_tokens);
    overwrite(load.max_num_batched_tokens, ranks[i].max_num_batched_tokens);
  }
  if (std::exchange(are_thresholds_new_, false)) {
    for (Worker& known : workers_) {
      if (!known.loads.empty()) evaluate(known);
    }
  }
  evaluate(its);
}

void BusyWorkers::mark_overloaded(InstanceId worker, sim::Time now) {
  workers_.at(worker.index()).refused_until =
      config_.overload_cooldown_s ? now + sim::from_seconds(*config_.overload_cooldown_s)
                                  : sim::kForever;
}

void BusyWorkers::set_thresholds(const BusyMonitor& from) {
  for (Worker& worker : workers_) {
    const BusyThresholds thresholds = from.thresholds_of(worker.pool);
    if (worker.thresholds == thresholds) continue;
    worker.thresholds = thresholds;
    are_thresholds_new_ = true;
  }
}

void BusyWorkers::evaluate(Worker& worker) {
  std::size_t busy = 0;
  for (const RankLoad& load : worker.loads) busy += is_rank_busy(load, worker.thresholds);
  has_exceeded_ = has_exceeded_ || busy > 0;
  // A worker without reports has no busy rank.
  const double needed = config_.busy_rank_share * static_cast<double>(worker.loads.size());
  worker.is_busy = busy > 0 && static_cast<double>(busy) >= needed;
}

bool BusyWorkers::is_rank_busy(const RankLoad& load, const BusyThresholds& thresholds) const {
  const std::int64_t total = load.kv_total_blocks.value_or(0);
  if (thresholds.active_decode_blocks && total > 0) {
    const double limit = *thresholds.active_decode_blocks * static_cast<double>(total);
    if (exceeds(load.active_decode_blocks, limit)) return true;
    // The latch needs no state of its own: the last values of both signals are kept.
    if (config_.decode_latch && exceeds(load.kv_used_blocks, limit)) return true;
  }
  const std::int64_t tokens = load.active_prefill_tokens.value_or(0);
  if (thresholds.active_prefill_tokens && tokens > *thresholds.active_prefill_tokens) return true;
  if (!thresholds.active_prefill_tokens_frac) return false;
  const std::int64_t batch = load.max_num_batched_tokens.value_or(0);
  const double limit = *thresholds.active_prefill_tokens_frac *
                       static_cast<double>(batch > 0 ? batch : kUnreportedBatch_tokens);
  return static_cast<double>(tokens) > std::floor(limit);
}

// ---- the load as the gateway knows it ------------------------------------------------------

WorkerMonitor::WorkerMonitor(const BusyMonitor& config, std::span<const Size> workers,
                             const workload::RequestTable& requests,
                             const workload::RequestStates& states)
    : requests_(requests),
      states_(states),
      tracks_output_(config.track_output_blocks),
      busy_(config, workers.size()),
      workers_(workers.size()) {
  for (std::size_t i = 0; i < workers.size(); ++i) {
    workers_[i].ranks.resize(workers[i].ranks, {.block_size_tokens = workers[i].block_size_tokens});
    busy_.set_pool(InstanceId{i}, workers[i].pool);
  }
}

std::int64_t WorkerMonitor::blocks_of(RequestId id, std::int64_t block_size_tokens) const {
  return (requests_.input_tokens(id) + block_size_tokens - 1) / block_size_tokens;
}

std::int32_t WorkerMonitor::elsewhere(RequestId id) const {
  return states_.resumes ? states_.resumptions[id.index()].emitted : 0;
}

// ---- requests of the gateway ---------------------------------------------------------------

void WorkerMonitor::sent(RequestId id, InstanceId worker) {
  Rank& rank = rank_of(id, worker);
  rank.prompt_tokens += requests_.input_tokens(id);
  rank.prompt_blocks += blocks_of(id, rank.block_size_tokens);
}

void WorkerMonitor::first_token(RequestId id, InstanceId worker) {
  if (id.index() < continues_.size() && continues_[id.index()] != 0) return;
  Rank& rank = rank_of(id, worker);
  rank.prompt_tokens -= requests_.input_tokens(id);
  if (tracks_output_) rank.generating.push_back(id);
}

void WorkerMonitor::finished(RequestId id, InstanceId worker) {
  Rank& rank = rank_of(id, worker);
  const bool had_first_token = sim::is_set(states_.first_token_here(id));
  if (!had_first_token) rank.prompt_tokens -= requests_.input_tokens(id);
  rank.prompt_blocks -= blocks_of(id, rank.block_size_tokens);
  std::erase(rank.generating, id);
}

void WorkerMonitor::sent_to_continue(RequestId id, InstanceId worker) {
  Rank& rank = rank_of(id, worker);
  rank.prompt_blocks += blocks_of(id, rank.block_size_tokens);
  if (tracks_output_) rank.generating.push_back(id);
  if (continues_.size() <= id.index()) continues_.resize(2 * id.index() + 1);
  continues_[id.index()] = 1;
}

void WorkerMonitor::finished_continuing(RequestId id, InstanceId worker) {
  Rank& rank = rank_of(id, worker);
  rank.prompt_blocks -= blocks_of(id, rank.block_size_tokens);
  std::erase(rank.generating, id);
  continues_[id.index()] = 0;
}

std::int64_t WorkerMonitor::generated_tokens(const Rank& rank) const {
  std::int64_t tokens = 0;
  for (const RequestId id : rank.generating) {
    if (sim::is_set(states_.first_token_here(id))) {
      tokens += states_.emitted[id.index()] - elsewhere(id);
    }
  }
  return tokens;
}

// ---- load events ---------------------------------------------------------------------------

void WorkerMonitor::measure(InstanceId worker, std::span<const RankReading> ranks) {
  Worker& its = workers_[worker.index()];
  std::vector<RankLoad>& loads = its.in_transit.emplace_back();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankReading& reading = ranks[i];
    const Rank& own = its.ranks[i];
    loads.push_back(
        {.active_decode_blocks = own.prompt_blocks + generated_tokens(own) / own.block_size_tokens,
         .kv_used_blocks = reading.capacity.num_kv_blocks - reading.signal.free_blocks,
         .kv_total_blocks = reading.capacity.num_kv_blocks,
         .active_prefill_tokens = own.prompt_tokens,
         .max_num_batched_tokens = reading.capacity.max_num_batched_tokens});
  }
}

void WorkerMonitor::arrive(InstanceId worker) {
  Worker& its = workers_[worker.index()];
  const std::vector<RankLoad>& loads = its.in_transit.front();
  if (!loads.empty()) busy_.report(worker, loads);
  its.in_transit.pop_front();
}

void WorkerMonitor::miss_in_transit(const WorkerMonitor& other) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].in_transit.resize(other.workers_[i].in_transit.size());
  }
}

}  // namespace spillway::signals
