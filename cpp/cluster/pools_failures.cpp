// What becomes of legs whose instances fail.

#include <optional>
#include <utility>

#include "cluster/pools.h"
#include "sim/phase.h"

namespace spillway::cluster {

using instance::Leg;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

void Pools::lost(RequestId id, Leg leg) {
  Job& job = job_of(id);
  if (leg == Leg::prefill) {
    job.is_unread = false;
  } else {
    job.has_decode_leg = job.is_receiving = false;
    ++losses_.decode;
  }
  end_lost(id, leg == Leg::prefill ? job.prefill : job.decode);
}

void Pools::held_leg_enters(RequestId id) {
  job_of(id).is_held = false;
  enter_leg(id);
}

void Pools::held_leg_is_lost(RequestId id) {
  job_of(id).is_held = false;
  if (!tries_again(id)) end_lost(id, destination(job_of(id)));
}

// The gateway does not learn of it, so that both legs stay booked.
bool Pools::tries_again(RequestId id) {
  Job& job = job_of(id);
  if (job.next != Leg::prefill || !retries_.allows_another(job.retries)) return false;
  if (job.leaves_when_read) return false;
  ++job.retries;
  ++losses_.prefill_retries;
  sim::Time& enqueued = context_.states.enqueued[id.index()];
  losses_.gone_on += sim::is_set(enqueued);
  losses_.prefill += std::exchange(job.is_prefilling, false);
  enqueued = context_.states.scheduled[id.index()] = sim::kUnset;
  context_.states.outcome[id.index()] = Outcome::in_transit;
  if (LegColumns* columns = columns_of(id)) ++columns->prefill_retries[id.index()];
  job.is_waiting = true;
  const Time due = context_.now + retries_.begin(id);
  context_.events.push({due, Phase::leg_entry, PrefillRetries::kTie, 0});
  return true;
}

void Pools::send_again() {
  const std::optional<RequestId> id = retries_.take();
  if (!id) return;
  job_of(*id).is_waiting = false;
  send(*id, Leg::prefill);
}

// A request in transit notices when it arrives, and a prompt that is being computed leaves its
// batch with the end of the step.
void Pools::end_lost(RequestId id, InstanceId instance) {
  Job& job = job_of(id);
  if (job.lost_instance < 0) job.lost_instance = static_cast<std::int32_t>(instance.value);
  const Outcome outcome = job.leaves_when_read ? Outcome::cancelled : Outcome::failed;
  if (job.on_the_way > 0) {
    if (!job.leaves_as) job.leaves_as = outcome;
    return;
  }
  if (!job.is_prefilling) return leave(id, outcome);
  job.is_lost = true;
  delay_steps();
  fleet_->at(job.prefill).cancel(id, job.prefill_rank, Outcome::failed, context_.now);
}

void Pools::leave(RequestId id, Outcome outcome) {
  if (outcome == Outcome::failed) {
    context_.states.reason[id.index()] = workload::kInstanceLost;
    losses_.between += sim::is_set(context_.states.enqueued[id.index()]);
  }
  end(id, outcome);
}

void Pools::count_loss(RequestId id, const Job& job) {
  workload::ReasonCode& reason = context_.states.reason[id.index()];
  if (job.leaves_when_read) {
    context_.states.outcome[id.index()] = Outcome::cancelled;
    reason = {};
    losses_.left_already += !job.is_lost;
  } else if (job.is_lost) {
    reason = workload::kInstanceLost;
    ++losses_.withdrawn;
  }
}

}  // namespace spillway::cluster
