// What the state of pools is, what holds of it at every event, and requests that wait for each
// other.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/pools.h"
#include "sim/error.h"

namespace spillway::cluster {

using sim::InstanceId;
using sim::RequestId;
using workload::Outcome;

// Whether anything is to come that may free blocks.
bool Pools::expects_changes() const {
  const bool is_failing = fleet_->health() && fleet_->health()->has_timers();
  if (link_.next() != sim::kForever || retries_.is_pending() || is_failing) return true;
  return std::ranges::any_of(jobs_, [this](const Job& job) {
    const bool is_inside = job.in_prefill || job.in_decode || job.is_unread;
    return job.on_the_way > 0 || job.is_kept ||
           (may_be_withdrawn_ && is_inside && !job.leaves_when_read);
  });
}

void Pools::check_progress() {
  if (expects_changes()) return;
  for (const auto& instance : fleet_->instances()) {
    for (std::size_t rank = 0; rank < instance->num_ranks(); ++rank) {
      if (!instance->rank(rank).legs()->is_idle()) return;
    }
  }
  report_deadlock();
}

// Steps go on, but no request gets further: each time memory is short, and prompts that no one
// reads hold the rest.
void Pools::check_preemptions() {
  instance::Counters totals;
  for (std::size_t i = 0; i < fleet_->instances().size(); ++i) {
    totals += fleet_->counters(InstanceId{i});
  }
  const instance::Counters last = std::exchange(last_totals_, totals);
  const bool has_moved = totals.tokens_emitted != last.tokens_emitted ||
                         totals.entered != last.entered || totals.cancelled != last.cancelled ||
                         totals.handed_over != last.handed_over ||
                         totals.completed != last.completed || totals.refused != last.refused;
  if (has_moved || totals.preemptions - last.preemptions < 1000 || expects_changes()) return;
  report_deadlock();
}

void Pools::report_deadlock() const {
  std::string text;
  std::int64_t stuck = 0;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    if (!job.is_unread && !(job.has_decode_leg && job.is_prefilling)) continue;
    if (++stuck > 2) continue;
    const InstanceId holds = job.is_unread ? job.prefill : job.decode;
    const InstanceId needs = job.is_unread ? job.decode : job.prefill;
    text += " request " + std::to_string(context_.requests.row(RequestId{i})) +
            " holds blocks of instance " + std::to_string(holds.value) +
            " and waits for some of instance " + std::to_string(needs.value) + ";";
  }
  if (stuck == 0) return;
  throw sim::LivelockError("prefill and decode pools wait for each other's memory at " +
                           sim::to_text(sim::to_seconds(context_.now)) + " s:" + text + " " +
                           std::to_string(stuck) +
                           " requests in all. Larger KV memories, or a limit in the gateway, "
                           "avoid it");
}

// The effort for each event is limited where there are many requests.
void Pools::check() {
  if (++checks_ % (1 + jobs_.size() / 1000) != 0) return;
  std::vector<std::vector<instance::HeldPrompts>> known;
  for (const auto& instance : fleet_->instances()) known.emplace_back(instance->num_ranks());
  std::int64_t moving = 0;
  std::int64_t routed = 0;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    moving += job.is_moving;
    if (job.is_unread) ++known[job.prefill.index()][job.prefill_rank].unread;
    if (job.is_receiving) ++known[job.decode.index()][job.decode_rank].receiving;
    const bool is_inside = job.in_prefill || job.in_decode || job.is_unread;
    routed += is_inside;
    const Outcome outcome = context_.states.outcome[i];
    sim::require(!is_inside || outcome == Outcome::in_transit || outcome == Outcome::running,
                 "request " + std::to_string(i) + " is in a pool, but not in flight");
    sim::require(job.moving_is_possible(),
                 "request " + std::to_string(i) + " moves a prompt that is not held on both sides");
  }
  for (const auto& gateway : gateways_->replicas()) routed -= gateway->local_state().routed;
  sim::require(routed == 0, "the gateways know of " + std::to_string(-routed) +
                                " more requests in the pools than there are");
  sim::require(link_.transfers() == moving, "the link has " + std::to_string(link_.transfers()) +
                                                " transfers of " + std::to_string(moving));
  for (std::size_t i = 0; i < known.size(); ++i) {
    for (std::size_t rank = 0; rank < known[i].size(); ++rank) {
      const instance::HeldPrompts held =
          fleet_->at(InstanceId{i}).rank(rank).legs()->held_prompts();
      sim::require(
          held.unread == known[i][rank].unread && held.receiving == known[i][rank].receiving,
          "instance " + std::to_string(i) + " holds " + std::to_string(held.unread) +
              " unread prompts of " + std::to_string(known[i][rank].unread) + " and " +
              std::to_string(held.receiving) + " empty ones of " +
              std::to_string(known[i][rank].receiving));
    }
  }
}

metrics::PoolsSample Pools::sample() const {
  const auto state_of = [&](const std::vector<InstanceId>& pool,
                            std::span<const InstanceId> ready) {
    metrics::PoolSample state{.ready_instances = std::ssize(ready)};
    for (const InstanceId id : pool) {
      const signals::InstanceSignal seen = fleet_->at(id).read(context_.now);
      for (const auto& gateway : gateways_->replicas()) state.in_flight += gateway->in_flight(id);
      state.waiting += seen.waiting;
      state.running += seen.running;
      state.kv_utilization += seen.kv_utilization / static_cast<double>(pool.size());
    }
    return state;
  };
  return {
      .prefill = state_of(prefill_, ready_prefill_),
      .decode = state_of(decode_, can_decode_ ? std::span(ready_decode_) : std::span<InstanceId>()),
      .transfers = counts_.transfers_begun - counts_.transfers_ended - counts_.transfers_cut};
}

metrics::LegCounts Pools::counts() const {
  metrics::LegCounts counts = counts_;
  if (fleet_->health()) {
    counts.losses = losses_;
    counts.losses->are_retried = retries_.is_on();
  }
  for (const Job& job : jobs_) {
    counts.prefill_inside += job.is_prefilling;
    counts.decode_waiting += job.has_decode_leg;
    counts.transfers_under_way += job.is_moving;
  }
  return counts;
}

}  // namespace spillway::cluster
