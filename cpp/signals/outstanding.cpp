#include "signals/outstanding.h"

namespace spillway::signals {

namespace {

/// Weight of the latest gap between two departures in their mean.
constexpr double kGapWeight = 0.1;

}  // namespace

Outstanding::Outstanding(const workload::RequestTable& requests, std::size_t num_instances)
    : requests_(requests), instances_(num_instances), queued_(requests.slo_classes.size()) {
  for (Instance& instance : instances_) instance.awaiting.resize(requests.slo_classes.size());
}

void Outstanding::admitted(sim::RequestId id, std::int64_t uncached_tokens) {
  if (requests_known_.size() <= id.index()) requests_known_.resize(id.index() + 1);
  requests_known_[id.index()].uncached_tokens = uncached_tokens;
  queued_[requests_.slo_class(id)] += {1, uncached_tokens};
}

void Outstanding::left_queue(sim::RequestId id) {
  queued_[requests_.slo_class(id)] += {-1, -requests_known_[id.index()].uncached_tokens};
}

void Outstanding::sent(sim::RequestId id, sim::InstanceId instance, std::int64_t uncached_tokens,
                       sim::Time now) {
  left_queue(id);
  Instance& there = at(instance);
  if (there.in_flight == 0) {
    there.last_known_step = now;
    there.releases.last = sim::kUnset;
  }
  ++there.in_flight;
  ++there.awaiting_requests;
  there.awaiting[requests_.slo_class(id)] += {1, uncached_tokens};
  requests_known_[id.index()] = {next_serial_, uncached_tokens};
  there.sent.push_back({id, next_serial_++, now});
}

bool Outstanding::answer(sim::RequestId id, Instance& instance) {
  Request& request = requests_known_[id.index()];
  if (request.serial == 0) return false;
  request.serial = 0;
  --instance.awaiting_requests;
  instance.awaiting[requests_.slo_class(id)] += {-1, -request.uncached_tokens};
  while (!instance.sent.empty() && !is_awaited(instance.sent.front())) instance.sent.pop_front();
  return true;
}

void Outstanding::first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) {
  Instance& there = at(instance);
  if (answer(id, there)) there.last_known_step = now;
}

void Outstanding::ended(sim::RequestId id, sim::InstanceId instance, sim::Time now) {
  Instance& there = at(instance);
  answer(id, there);
  there.last_known_step = now;
  --there.in_flight;
  Releases& releases = there.releases;
  if (sim::is_set(releases.last)) {
    const double gap_s = sim::to_seconds(now - releases.last);
    const bool is_first = releases.mean_gap_s == 0;
    releases.mean_gap_s += (is_first ? 1 : kGapWeight) * (gap_s - releases.mean_gap_s);
  }
  releases.last = now;
}

Outstanding::Sum Outstanding::awaiting(sim::InstanceId instance) const {
  Sum all;
  for (const Sum& of_class : at(instance).awaiting) all += of_class;
  return all;
}

Outstanding::Sum Outstanding::sent_after(sim::InstanceId instance, sim::Time since) const {
  Sum sum;
  const sim::Ring<Sent>& sent = at(instance).sent;
  for (std::size_t i = sent.size(); i > 0 && sent[i - 1].at > since; --i) {
    const Sent& request = sent[i - 1];
    if (is_awaited(request)) sum += {1, requests_known_[request.id.index()].uncached_tokens};
  }
  return sum;
}

}  // namespace spillway::signals
