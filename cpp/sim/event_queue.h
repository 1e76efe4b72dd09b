#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/phase.h"
#include "sim/time.h"

namespace spillway::sim {

/// A time, a phase and a subject. `tie` orders events of one phase and instant; `subject` is an
/// index, of a request, an instance or another entity, as the phase implies.
class Event {
 public:
  Event() = default;
  Event(Time time, Phase phase, std::uint32_t tie, std::uint32_t subject)
      : time_(time), order_(order_of(phase, tie)), subject_(subject) {}

  Time time() const { return time_; }
  Phase phase() const { return static_cast<Phase>(order_ >> kTieBits); }
  std::uint32_t tie() const { return static_cast<std::uint32_t>(order_); }
  std::uint32_t subject() const { return subject_; }

 private:
  friend class EventQueue;
  static constexpr unsigned kTieBits = 32;
  static constexpr std::uint64_t order_of(Phase phase, std::uint32_t tie) {
    return (static_cast<std::uint64_t>(phase) << kTieBits) | tie;
  }

  Time time_ = kForever;
  std::uint64_t order_ = 0;  // phase and tie in one word that compares like the pair
  std::uint32_t subject_ = 0;
};

/// Pending events, earliest first by (time, phase, tie, order of creation). Allocates only when it
/// exceeds its largest size so far.
///
/// Entries are one-off events or alarms. Each owner has at most one alarm, which it may set anew at
/// any time. An expired alarm is returned as an event of phase `step_end` whose tie and subject are
/// the owner.
class EventQueue {
 public:
  explicit EventQueue(std::size_t num_owners = 0);

  void push(const Event& event) {
    const std::uint64_t serial = next_serial_++;
    if (front_.event.time_ == kForever && event.time_ < heap_time_) {
      front_.event = event;
      front_.serial = serial;
    } else {
      push_behind({event, serial});
    }
  }
  /// Replaces the owner's alarm if it has one. An alarm that was returned must be set anew or
  /// cleared before the next event is taken.
  void set_alarm(std::uint32_t owner, Time time);
  void clear_alarm(std::uint32_t owner) { set_alarm(owner, kForever); }

  /// Takes the earliest event, unless it lies beyond `horizon` or there is none.
  bool pop(Time horizon, Event& event) {
    const Time time = front_.event.time_;
    if (time < alarms_[1].time && time <= horizon) {
      ++popped_;
      event = front_.event;
      front_.event.time_ = kForever;
      return true;
    }
    return pop_other(horizon, event);
  }
  /// Time of the next event; kForever: none.
  Time next_due() const { return std::min({front_.event.time_, heap_time_, alarms_[1].time}); }
  /// Whether any event is due at or before `now`.
  bool is_due(Time now) const {
    return front_.event.time_ <= now || heap_time_ <= now || alarms_[1].time <= now;
  }
  /// The same, except for the alarm of `owner`.
  bool is_due(Time now, std::uint32_t owner) const {
    if (front_.event.time_ <= now || heap_time_ <= now) return true;
    for (std::size_t node = num_leaves_ + owner; node > 1; node /= 2) {
      if (alarms_[node ^ 1].time <= now) return true;
    }
    return false;
  }
  /// Number of events taken out so far.
  std::uint64_t popped() const { return popped_; }

 private:
  struct Entry {
    Event event;
    std::uint64_t serial = 0;
  };
  struct Alarm {
    Time time = kForever;
    std::uint32_t owner = 0;
  };

  static bool before(const Entry& a, const Entry& b);

  void push_behind(const Entry& entry);
  bool pop_other(Time horizon, Event& event);
  void push_heap(const Entry& entry);
  void pop_heap();

  // An event that is earlier than all others when it is created stays outside of the heap: most
  // events are created for the current instant and taken immediately. kForever: none.
  Entry front_;
  std::vector<Entry> heap_;    // 4-ary
  Time heap_time_ = kForever;  // of its first
  // A tournament: leaf num_leaves_ + i is the alarm of owner i, node i the earlier one of its
  // children 2i and 2i + 1, the left one if they are equal.
  std::vector<Alarm> alarms_;
  std::size_t num_leaves_ = 1;
  std::uint64_t next_serial_ = 0;
  std::uint64_t popped_ = 0;
};

}  // namespace spillway::sim
