#include "instance/ranks.h"

#include <algorithm>
#include <utility>

namespace spillway::instance {

using sim::RequestId;
using sim::Time;

Counters& Counters::operator+=(const Counters& other) {
  entered += other.entered;
  refused += other.refused;
  completed += other.completed;
  cancelled += other.cancelled;
  handed_over += other.handed_over;
  lost += other.lost;
  lost_legs += other.lost_legs;
  lost_time += other.lost_time;
  preemptions += other.preemptions;
  tokens_recomputed += other.tokens_recomputed;
  tokens_wasted += other.tokens_wasted;
  steps += other.steps;
  tokens_emitted += other.tokens_emitted;
  waiting_time_s += other.waiting_time_s;
  waiting_after_steps += other.waiting_after_steps;
  kv_hits += other.kv_hits;
  kv_misses += other.kv_misses;
  kv_lookups += other.kv_lookups;
  peak_kv_utilization = std::max(peak_kv_utilization, other.peak_kv_utilization);
  last_event = std::max(last_event, other.last_event);
  return *this;
}

void Ranks::add(std::unique_ptr<Instance> rank) {
  ranks_.push_back(std::move(rank));
  inside_.push_back(0);
}

std::int64_t Ranks::load_of(std::size_t rank) const {
  const std::int64_t running = ranks_[rank]->occupancy().running;
  return 4 * (inside_[rank] - running) + running;
}

std::size_t Ranks::next_rank() const {
  std::size_t chosen = 0;
  for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
    if (load_of(rank) < load_of(chosen)) chosen = rank;
  }
  return chosen;
}

Time Ranks::entry_delay(RequestId id) const { return ranks_.front()->entry_delay(id); }

void Ranks::enqueue(RequestId id, std::size_t rank, Time now) { ranks_[rank]->enqueue(id, 0, now); }

void Ranks::cancel(RequestId id, std::size_t rank, workload::Outcome outcome, Time now) {
  ranks_[rank]->cancel(id, 0, outcome, now);
}

void Ranks::crash(Time now) {
  for (const auto& rank : ranks_) rank->crash(now);
}

void Ranks::suspend(Time now) {
  for (const auto& rank : ranks_) rank->suspend(now);
}

void Ranks::resume(Time now) {
  for (const auto& rank : ranks_) rank->resume(now);
}

void Ranks::set_slowness(double factor, Time now) {
  for (const auto& rank : ranks_) rank->set_slowness(factor, now);
}

Loss Ranks::lose_kv(bool cached_only, Time now) {
  Loss sum;
  for (const auto& rank : ranks_) {
    const Loss loss = rank->lose_kv(cached_only, now);
    sum.tokens += loss.tokens;
    sum.preempted += loss.preempted;
  }
  return sum;
}

void Ranks::close(Time end) {
  for (const auto& rank : ranks_) {
    rank->close(end);
    counters_ += rank->counters();
  }
}

signals::InstanceSignal Ranks::read(Time now) {
  signals::InstanceSignal sum{.measured = now};
  const auto n = static_cast<double>(ranks_.size());
  for (const auto& rank : ranks_) {
    const signals::InstanceSignal part = rank->read(now);
    sum.waiting += part.waiting;
    sum.running += part.running;
    sum.kv_utilization += part.kv_utilization / n;
    sum.free_blocks += part.free_blocks;
    sum.prefill_tokens += part.prefill_tokens;
    sum.prefix_hits += part.prefix_hits;
    sum.prefix_lookups += part.prefix_lookups;
  }
  return sum;
}

signals::Occupancy Ranks::occupancy() const {
  signals::Occupancy sum;
  for (const auto& rank : ranks_) {
    const signals::Occupancy part = rank->occupancy();
    sum.waiting += part.waiting;
    sum.running += part.running;
  }
  return sum;
}

signals::Capacity Ranks::capacity() const {
  signals::Capacity sum = ranks_.front()->capacity();
  const auto n = std::ssize(ranks_);
  sum.max_num_seqs *= n;
  sum.max_num_batched_tokens *= n;
  sum.num_kv_blocks *= n;
  return sum;
}

std::int64_t Ranks::cached_blocks(RequestId id, Time now) {
  std::int64_t most = 0;
  for (const auto& rank : ranks_) most = std::max(most, rank->cached_blocks(id, now));
  return most;
}

void Ranks::add_emitted(std::span<std::int64_t> by_group, Time now) {
  for (const auto& rank : ranks_) rank->add_emitted(by_group, now);
}

void Ranks::note_emitted(sim::Time now) {
  for (const auto& rank : ranks_) rank->note_emitted(now);
}

sim::Time Ranks::next_token(sim::Time now) {
  sim::Time next = sim::kForever;
  for (const auto& rank : ranks_) next = std::min(next, rank->next_token(now));
  return next;
}

void Ranks::check_memory() const {
  for (const auto& rank : ranks_) rank->check_memory();
}

}  // namespace spillway::instance
