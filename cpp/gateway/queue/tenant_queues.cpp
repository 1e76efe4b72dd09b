#include "gateway/queue/tenant_queues.h"

#include <algorithm>

namespace spillway::gateway {

using sim::RequestId;
using sim::TenantId;
using sim::Time;

TenantQueues::TenantQueues(std::size_t num_tenants, const Queue& config, bool has_own_timeouts)
    : ordering_(config.ordering),
      drop_(config.drop),
      flows_(num_tenants),
      place_(num_tenants),
      takes_newest_(config.ordering == Ordering::lifo),
      by_own_timeout_(has_own_timeouts && config.ordering == Ordering::edf),
      is_ordered_(by_own_timeout_ || needs_deadlines() || needs_outputs()) {
  set_times(config);
}

void TenantQueues::set_times(const Queue& config) {
  timeout_with_servers_ = config.timeout_s ? sim::from_seconds(*config.timeout_s) : sim::kForever;
  has_two_timeouts_ = config.timeout_without_servers_s.has_value();
  timeout_without_servers_ = has_two_timeouts_
                                 ? sim::from_seconds(*config.timeout_without_servers_s)
                                 : timeout_with_servers_;
  timeout_ = has_servers_ ? timeout_with_servers_ : timeout_without_servers_;
  target_ = config.codel_target_s ? sim::from_seconds(*config.codel_target_s) : sim::kForever;
  interval_ = sim::from_seconds(config.codel_interval_s);
}

void TenantQueues::change(const Queue& to, Time now) {
  const Time before = timeout_;
  set_times(to);
  if (timeout_ != before) time_anew(now);
}

void TenantQueues::set_servers(bool has_servers, Time now) {
  if (has_servers == has_servers_) return;
  has_servers_ = has_servers;
  if (!has_two_timeouts_) return;
  timeout_ = has_servers ? timeout_with_servers_ : timeout_without_servers_;
  counted_from_ = now;
  time_anew(now);
}

void TenantQueues::time_anew(Time now) {
  std::vector<Waiting> waiting;
  own_.clear();
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    Flow& flow = flows_[i];
    if (by_own_timeout_) order_again(flow);
    for (Flow::Handle at = flow.back(); at != Flow::kNone; at = flow.previous(at)) {
      const Time expiry = expiry_of(flow[at]);
      if (expiry == sim::kForever) continue;
      std::vector<Waiting>& list = sim::is_set(flow[at].timeout) ? own_ : waiting;
      list.push_back({TenantId{i}, at, flow[at].serial, std::max(expiry, now)});
    }
  }
  std::make_heap(own_.begin(), own_.end());
  std::ranges::sort(waiting, {}, &Waiting::serial);
  by_timeout_ = {};
  for (const Waiting& request : waiting) by_timeout_.push_back(request);
}

void TenantQueues::order_again(Flow& flow) {
  std::vector<Entry> entries;
  while (!flow.empty()) {
    entries.push_back(flow[flow.front()]);
    entries.back().deadline = expiry_of(entries.back());
    flow.erase(flow.front());
  }
  std::ranges::sort(entries, {}, &Entry::serial);
  for (const Entry& entry : entries) insert(flow, entry);
}

void TenantQueues::push(TenantId flow, const Entry& entry) {
  Flow& queue = flows_[flow.index()];
  if (queue.empty()) {
    place_[flow.index()] = backlogged_.size();
    backlogged_.push_back(flow);
  }
  const Time expiry = expiry_of(entry);
  const Flow::Handle at =
      is_ordered_ ? insert_by_deadline(queue, entry, expiry) : queue.push_back(entry);
  const std::uint64_t serial = next_serial_++;
  queue[at].serial = serial;
  ++size_;
  if (expiry == sim::kForever) return;
  if (!sim::is_set(entry.timeout)) return by_timeout_.push_back({flow, at, serial, expiry});
  own_.push_back({flow, at, serial, expiry});
  std::push_heap(own_.begin(), own_.end());
}

TenantQueues::Flow::Handle TenantQueues::insert_by_deadline(Flow& flow, Entry entry, Time expiry) {
  if (by_own_timeout_) entry.deadline = expiry;
  return insert(flow, entry);
}

TenantQueues::Flow::Handle TenantQueues::insert(Flow& flow, const Entry& entry) {
  // Deadlines mostly arrive in order, so the place is near the end.
  Flow::Handle before = Flow::kNone;
  for (Flow::Handle last = flow.back(); last != Flow::kNone && flow[last].deadline > entry.deadline;
       last = flow.previous(last)) {
    before = last;
  }
  return flow.insert(before, entry);
}

RequestId TenantQueues::remove(TenantId flow, Flow::Handle at) {
  Flow& queue = flows_[flow.index()];
  const RequestId request = queue[at].request;
  queue[at].serial = 0;  // for `is_gone`, even after the slot is reused
  queue.erase(at);
  --size_;
  if (queue.empty()) {
    const TenantId moved = backlogged_.back();
    backlogged_[place_[flow.index()]] = moved;
    place_[moved.index()] = place_[flow.index()];
    backlogged_.pop_back();
  }
  return request;
}

RequestId TenantQueues::pop(TenantId flow) {
  const RequestId request = remove(flow, head_of(flows_[flow.index()]));
  if (ordering_ == Ordering::adaptive_lifo) takes_newest_ = false;
  return request;
}

TenantQueues::Flow::Handle TenantQueues::least_of(const Flow& flow) {
  Flow::Handle least = Flow::kNone;
  for (Flow::Handle at = flow.back(); at != Flow::kNone; at = flow.previous(at)) {
    if (least == Flow::kNone || is_less(flow[at], flow[least])) least = at;
  }
  return least;
}

std::optional<TenantQueues::Removed> TenantQueues::make_room(TenantId flow, std::int64_t priority) {
  const Flow& queue = flows_[flow.index()];
  if (drop_ == Drop::tail || queue.empty()) return std::nullopt;
  if (drop_ == Drop::head) return Removed{flow, remove(flow, head_of(queue))};
  const Flow::Handle least = least_of(queue);
  if (queue[least].priority >= priority) return std::nullopt;
  return Removed{flow, remove(flow, least)};
}

std::optional<TenantQueues::Removed> TenantQueues::take_least(std::int64_t priority) {
  std::optional<Place> least;
  for (const TenantId flow : backlogged_) {
    const Place place{flow, least_of(flows_[flow.index()])};
    if (!least || is_less(at(place), at(*least))) least = place;
  }
  if (!least || at(*least).priority >= priority) return std::nullopt;
  return Removed{least->flow, remove(least->flow, least->handle)};
}

const TenantQueues::Waiting* TenantQueues::first_of_both(const Waiting* first) {
  while (!own_.empty() && is_gone(own_.front())) {
    std::pop_heap(own_.begin(), own_.end());
    own_.pop_back();
  }
  if (own_.empty()) return first;
  return !first || *first < own_.front() ? &own_.front() : first;
}

const TenantQueues::Waiting* TenantQueues::first_to_expire() {
  while (!by_timeout_.empty() && is_gone(by_timeout_.front())) by_timeout_.pop_front();
  const Waiting* first = by_timeout_.empty() ? nullptr : &by_timeout_.front();
  return own_.empty() ? first : first_of_both(first);
}

Time TenantQueues::next_timeout() {
  const Waiting* first = first_to_expire();
  return first ? first->until : sim::kForever;
}

std::optional<TenantQueues::Removed> TenantQueues::take_expired(Time now) {
  const Waiting* first = first_to_expire();
  if (!first || first->until > now) return std::nullopt;
  const Waiting expired = *first;  // is gone with its removal
  if (ordering_ == Ordering::adaptive_lifo) takes_newest_ = true;
  return Removed{expired.flow, remove(expired.flow, expired.at)};
}

TenantQueues::Removed TenantQueues::withdraw(TenantId flow, RequestId request) {
  const Flow& queue = flows_[flow.index()];
  // The longest waiting requests are usually withdrawn first.
  Flow::Handle at = queue.front();
  while (queue[at].request != request) at = queue.next(at);
  return {flow, remove(flow, at)};
}

bool TenantQueues::judge_delay(Time waited, Time now) {
  // The first request of an interval evaluates the previous interval; it is never dropped.
  if (now >= interval_end_) {
    overloaded_ = shortest_ != sim::kForever && shortest_ > target_;
    interval_end_ = now + interval_;
    shortest_ = waited;
    return false;
  }
  shortest_ = std::min(shortest_, waited);
  return overloaded_ && waited > target_ + target_;
}

}  // namespace spillway::gateway
