#include "sim/event_queue.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace spillway::sim {

namespace {

constexpr std::size_t kArity = 4;

}  // namespace

EventQueue::EventQueue(std::size_t num_owners)
    : num_leaves_(std::bit_ceil(std::max<std::size_t>(num_owners, 1))) {
  near_.front().event.order_ = std::numeric_limits<std::uint64_t>::max();
  alarms_.resize(2 * num_leaves_, alarm_of(0, kForever));
}

Time EventQueue::next_due_besides(std::uint32_t phases) const {
  Time next = std::min(source_, alarm_time(1));
  const auto consider = [&](const Event& event) {
    if ((phases & bit_of(event.phase())) == 0) next = std::min(next, event.time());
  };
  for (std::size_t at = 1; at <= num_near_; ++at) consider(near_[at].event);
  for (const Entry& entry : heap_) consider(entry.event);
  return next;
}

bool EventQueue::before(const Entry& a, const Entry& b) {
  if (precedes(a.event, b.event)) return true;
  return !precedes(b.event, a.event) && a.serial < b.serial;
}

// The event does not precede the heap, or there are too many near events.
void EventQueue::push_far(const Entry& entry) {
  if (num_near_ < kMaxNear || !before(entry, near_[1])) return push_heap(entry);
  push_heap(near_[1]);
  std::size_t at = 1;
  for (; at < num_near_ && before(entry, near_[at + 1]); ++at) near_[at] = near_[at + 1];
  near_[at] = entry;
}

void EventQueue::refill() {
  num_near_ = std::min(heap_.size(), kMaxNear / 2);
  for (std::size_t at = num_near_; at > 0; --at) near_[at] = pop_heap();
}

void EventQueue::push_heap(const Entry& entry) {
  std::size_t hole = heap_.size();
  heap_.push_back(entry);
  while (hole > 0) {
    const std::size_t parent = (hole - 1) / kArity;
    if (!before(entry, heap_[parent])) break;
    heap_[hole] = heap_[parent];
    hole = parent;
  }
  heap_[hole] = entry;
}

EventQueue::Entry EventQueue::pop_heap() {
  const Entry first = heap_.front();
  const Entry last = heap_.back();
  heap_.pop_back();
  std::size_t hole = 0;
  for (;;) {
    const std::size_t begin = hole * kArity + 1;
    if (begin >= heap_.size()) break;
    const std::size_t end = std::min(begin + kArity, heap_.size());
    std::size_t smallest = begin;
    for (std::size_t child = begin + 1; child < end; ++child) {
      if (before(heap_[child], heap_[smallest])) smallest = child;
    }
    if (!before(heap_[smallest], last)) break;
    heap_[hole] = heap_[smallest];
    hole = smallest;
  }
  if (!heap_.empty()) heap_[hole] = last;
  return first;
}

bool EventQueue::pop_simultaneous(Time horizon, Event& event) {
  event = near_[num_near_].event;
  const Event source(source_, Phase::source_arrival, 0, 0);
  const Event expired = first_alarm();
  const bool is_source = precedes(source, event);
  if (is_source) event = source;
  const bool is_alarm = precedes(expired, event);
  if (is_alarm) event = expired;
  if (event.time_ > horizon || event.time_ == kForever) return false;
  ++popped_;
  if (is_alarm) return true;
  is_source ? take_source() : take_pushed();
  return true;
}

void EventQueue::set_alarm(std::uint32_t owner, Time time) {
  if (owner == disregarded_) disregarded_ = kNobody;
  std::size_t node = num_leaves_ + owner;
  Alarm earliest = alarm_of(owner, time);
  alarms_[node] = earliest;
  while (node > 1) {
    const Alarm other = alarms_[node ^ 1];
    // A branch would be unpredictable.
    earliest = __builtin_expect_with_probability(other < earliest, 1, 0.5) ? other : earliest;
    node /= 2;
    alarms_[node] = earliest;
  }
}

}  // namespace spillway::sim
