#include "instance/ingress/front_end_queue.h"

#include <algorithm>

#include "sim/phase.h"

namespace spillway::instance {

using sim::RequestId;
using sim::Time;

FrontEndQueue::FrontEndQueue(const FrontEnd& config, IngressQueue* ingress, sim::InstanceId id,
                             const Environment& environment)
    : config_(config),
      ingress_(ingress),
      id_(id),
      requests_(environment.requests),
      events_(environment.events),
      free_at_(static_cast<std::size_t>(config.workers)) {}

Time FrontEndQueue::serve(RequestId id, Time now) {
  const double us = config_.us_per_request +
                    config_.us_per_token * static_cast<double>(requests_.input_tokens(id));
  const auto first = std::ranges::min_element(free_at_);
  *first = std::max(*first, now) + sim::from_seconds(us * 1e-6);
  return *first;
}

void FrontEndQueue::enqueue(RequestId id, std::size_t rank, Time now) {
  const auto inside = std::ranges::find(inside_, id, &Inside::id);
  if (inside != inside_.end()) {
    const auto outcome = inside->outcome;
    inside_.erase(inside);
    tokens_ -= requests_.input_tokens(id);
    inner().enqueue(id, rank, now);
    if (outcome) inner().cancel(id, rank, *outcome, now);
    return;
  }
  if (ingress_) {
    const bool counts = config_.counts_on_arrival;
    const auto reason =
        ingress_->reason_to_refuse(counts ? std::ssize(inside_) : 0, counts ? tokens_ : 0, now);
    if (reason) return ingress_->refuse(id, *reason, now);
  }
  inside_.push_back({id, std::nullopt});
  tokens_ += requests_.input_tokens(id);
  events_.push({serve(id, now), sim::Phase::ingress, id_.value, IngressSubject::entry_of(id)});
}

void FrontEndQueue::cancel(RequestId id, std::size_t rank, workload::Outcome outcome, Time now) {
  const auto inside = std::ranges::find(inside_, id, &Inside::id);
  if (inside == inside_.end()) return inner().cancel(id, rank, outcome, now);
  inside->outcome = outcome;
}

}  // namespace spillway::instance
