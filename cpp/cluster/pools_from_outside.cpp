// Requests that state their instances, because what is in front of the fleet has chosen them.

#include <array>
#include <optional>
#include <utility>

#include "cluster/pools.h"

namespace spillway::cluster {

using instance::Leg;
using sim::InstanceId;
using sim::RequestId;

std::optional<workload::ReasonCode> Pools::route_to_only(RequestId id, Job& job,
                                                         InstanceId instance) {
  const workload::ReasonCode why{workload::Stage::router, 0};
  job.is_remote = submissions_->is_prefill_only(id);
  const auto target = job.is_remote ? pick_only_prefill(id, instance) : pick_only(id, instance);
  if (!target) return why;
  if (job.is_remote) {
    book_prefill(id, *target);
    move_to(id, job.prefill, job.prefill_rank);
  } else {
    book_decode(id, *target);
    move_to(id, job.decode, job.decode_rank);
    ++counts_.local;
  }
  send(id, job.is_remote ? Leg::prefill : Leg::whole);
  return std::nullopt;
}

std::optional<router::Target> Pools::pick_only(RequestId id, InstanceId instance) {
  if (!fleet_->is_ready(instance)) return std::nullopt;
  GatewayReplica& gateway = gateway_of(id);
  const std::array only{instance};
  return gateway.decide_or_reject(id, fleet_->view(gateway.local_state()).of(only));
}

std::optional<router::Target> Pools::pick_only_prefill(RequestId id, InstanceId instance) {
  if (!fleet_->is_ready(instance)) return std::nullopt;
  GatewayReplica& gateway = gateway_of(id);
  const std::array only{instance};
  return gateway.decide_prefill(id, fleet_->view(gateway.local_state_of_prefill()).of(only));
}

void Pools::keep(RequestId id) {
  Job& job = job_of(id);
  job.is_kept = true;
  job.is_unplanned = !submissions_->is_planned(id);
  if (job.is_unplanned) gateway_of(id).count_kept(1);
}

void Pools::hand_off(RequestId id) {
  if (jobs_.size() <= id.index()) return;
  Job& job = job_of(id);
  if (!std::exchange(job.is_kept, false)) return;
  if (std::exchange(job.is_unplanned, false)) gateway_of(id).count_kept(-1);
  begin_handoff(id);
}

}  // namespace spillway::cluster
