#include "sim/event_queue.h"

#include <algorithm>
#include <bit>

namespace spillway::sim {

namespace {

constexpr std::size_t kArity = 4;

}  // namespace

EventQueue::EventQueue(std::size_t num_owners)
    : num_leaves_(std::bit_ceil(std::max<std::size_t>(num_owners, 1))) {
  alarms_.resize(2 * num_leaves_);
  for (std::size_t i = 0; i < num_leaves_; ++i) {
    alarms_[num_leaves_ + i].owner = static_cast<std::uint32_t>(i);
  }
}

bool EventQueue::before(const Entry& a, const Entry& b) {
  if (a.event.time_ != b.event.time_) return a.event.time_ < b.event.time_;
  if (a.event.order_ != b.event.order_) return a.event.order_ < b.event.order_;
  return a.serial < b.serial;
}

void EventQueue::push_behind(const Entry& entry) {
  if (front_.event.time_ == kForever) {
    if (!heap_.empty() && before(heap_.front(), entry)) return push_heap(entry);
    front_ = entry;
  } else if (before(entry, front_)) {
    push_heap(front_);
    front_ = entry;
  } else {
    push_heap(entry);
  }
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
  heap_time_ = heap_.front().event.time_;
}

void EventQueue::pop_heap() {
  const Entry last = heap_.back();
  heap_.pop_back();
  if (heap_.empty()) {
    heap_time_ = kForever;
    return;
  }
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
  heap_[hole] = last;
  heap_time_ = heap_.front().event.time_;
}

bool EventQueue::pop_other(Time horizon, Event& event) {
  const Alarm alarm = alarms_[1];
  const bool has_front = front_.event.time_ != kForever;
  const Event& first = (has_front || heap_.empty() ? front_ : heap_.front()).event;
  const bool alarm_is_next = alarm.time != first.time_
                                 ? alarm.time < first.time_
                                 : Event::order_of(Phase::step_end, alarm.owner) < first.order_;
  const Time time = alarm_is_next ? alarm.time : first.time_;
  if (time > horizon || time == kForever) return false;
  ++popped_;
  if (alarm_is_next) {
    event = Event(time, Phase::step_end, alarm.owner, alarm.owner);
    return true;
  }
  event = first;
  if (has_front) {
    front_.event.time_ = kForever;
  } else {
    pop_heap();
  }
  return true;
}

void EventQueue::set_alarm(std::uint32_t owner, Time time) {
  std::size_t node = num_leaves_ + owner;
  Alarm winner{time, owner};
  alarms_[node] = winner;
  // Selects instead of branching: the branch would be unpredictable.
  for (; node > 1; node /= 2) {
    const Alarm& other = alarms_[node ^ 1];
    const bool other_is_left = (node & 1) != 0;
    const bool other_wins =
        (other.time < winner.time) | (other_is_left & (other.time == winner.time));
    winner.time = other_wins ? other.time : winner.time;
    winner.owner = other_wins ? other.owner : winner.owner;
    alarms_[node / 2] = winner;
  }
}

}  // namespace spillway::sim
