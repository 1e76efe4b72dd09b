#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
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
/// Entries are one-off events, alarms and the source. Each owner has at most one alarm, which it
/// may set anew at any time. An expired alarm is returned as an event of phase `step_end` whose tie
/// and subject are the owner. The source is one event of phase `source_arrival`, without tie and
/// subject.
class EventQueue {
 public:
  explicit EventQueue(std::size_t num_owners = 0);

  void push(const Event& event) {
    const Entry entry{event, next_serial_++};
    if (num_near_ == kMaxNear || (!heap_.empty() && !precedes(event, heap_.front().event))) {
      return push_far(entry);
    }
    // Most events are created for the current instant, or behind a few others.
    std::size_t at = ++num_near_;
    for (; !precedes(event, near_[at - 1].event); --at) near_[at] = near_[at - 1];
    near_[at] = entry;
  }
  /// Replaces the owner's alarm if it has one. An alarm that was returned must be set anew or
  /// cleared before the next event is taken.
  void set_alarm(std::uint32_t owner, Time time);
  void clear_alarm(std::uint32_t owner) { set_alarm(owner, kForever); }
  /// From now on the owner's alarm is not due. It must be set or cleared before the next event is
  /// taken: an alarm that is about to be set anew is thus not also cleared.
  void disregard_alarm(std::uint32_t owner) { disregarded_ = owner; }
  /// Sets the time of the source's next event. Precondition: none is pending.
  void set_source(Time time) { source_ = time; }

  /// Takes the earliest event, unless it lies beyond `horizon` or there is none.
  bool pop(Time horizon, Event& event) {
    const Time alarm = alarm_time(1);
    const Time pushed = next_pushed();
    if (alarm < pushed && alarm < source_) {
      if (alarm > horizon) return false;
      event = first_alarm();
    } else if (source_ < pushed && source_ < alarm) {
      if (source_ > horizon) return false;
      event = take_source();
    } else if (pushed < source_ && pushed < alarm) {
      if (pushed > horizon) return false;
      event = take_pushed();
    } else {
      return pop_simultaneous(horizon, event);
    }
    ++popped_;
    return true;
  }
  /// Time of the next event; kForever: none. Precondition: no alarm is disregarded.
  Time next_due() const { return std::min({next_pushed(), source_, alarm_time(1)}); }
  /// Whether any event is due at or before `now`.
  bool is_due(Time now) {
    heed_all();
    return next_due() <= now;
  }
  /// Time of the earliest event; kForever: there is none.
  Time next_due_of_all() {
    heed_all();
    return next_due();
  }
  /// The same, except for the alarm of `owner`.
  bool is_due(Time now, std::uint32_t owner) {
    if (disregarded_ != owner) heed_all();
    if (next_pushed() <= now || source_ <= now) return true;
    for (std::size_t node = num_leaves_ + owner; node > 1; node /= 2) {
      if (alarm_time(node ^ 1) <= now) return true;
    }
    return false;
  }
  /// Time of the next event of none of the given phases, each stated by the bit `bit_of`; kForever:
  /// none. Takes time proportional to `size`.
  Time next_due_besides(std::uint32_t phases) const;
  static constexpr std::uint32_t bit_of(Phase phase) {
    return std::uint32_t{1} << static_cast<unsigned>(phase);
  }
  /// Number of pending events, without alarms and the source.
  std::size_t size() const { return num_near_ + heap_.size(); }
  /// Number of events taken out so far.
  std::uint64_t popped() const { return popped_; }

 private:
  struct Entry {
    Event event;
    std::uint64_t serial = 0;
  };

  // Time (≥ 0) and owner in one number that compares like the pair.
  __extension__ using Alarm = unsigned __int128;
  static constexpr unsigned kOwnerBits = 64;
  static Alarm alarm_of(std::uint32_t owner, Time time) {
    return static_cast<Alarm>(time.ns) << kOwnerBits | owner;
  }

  static constexpr std::size_t kMaxNear = 16;
  static constexpr std::uint32_t kNobody = 0xFFFFFFFF;

  static bool precedes(const Event& a, const Event& b) {
    return a.time_ != b.time_ ? a.time_ < b.time_ : a.order_ < b.order_;
  }
  static bool before(const Entry& a, const Entry& b);

  Time next_pushed() const { return near_[num_near_].event.time_; }
  Event take_pushed() {
    const Event event = near_[num_near_].event;
    if (--num_near_ == 0 && !heap_.empty()) refill();
    return event;
  }
  Time alarm_time(std::size_t node) const {
    return Time{static_cast<std::int64_t>(alarms_[node] >> kOwnerBits)};
  }
  Event first_alarm() const {
    const auto owner = static_cast<std::uint32_t>(alarms_[1]);
    return {alarm_time(1), Phase::step_end, owner, owner};
  }
  Event take_source() {
    const Time time = source_;
    source_ = kForever;
    return {time, Phase::source_arrival, 0, 0};
  }
  // Clears an alarm that is disregarded.
  void heed_all() {
    if (disregarded_ != kNobody) clear_alarm(disregarded_);
  }
  bool pop_simultaneous(Time horizon, Event& event);
  void push_far(const Entry& entry);
  void refill();
  void push_heap(const Entry& entry);
  Entry pop_heap();

  // Pushed events: the earliest ones in descending order, behind an entry that is never due, and
  // the others in a 4-ary heap. The heap is empty if there are none of the former.
  std::array<Entry, 1 + kMaxNear> near_;
  std::size_t num_near_ = 0;
  std::vector<Entry> heap_;
  Time source_ = kForever;
  // A tournament: leaf num_leaves_ + i is the alarm of owner i, node i the earlier one of its
  // children 2i and 2i + 1, the left one, which has the lesser owner, if they are equal.
  std::vector<Alarm> alarms_;
  std::size_t num_leaves_ = 1;
  std::uint32_t disregarded_ = kNobody;  // its alarm is not due
  std::uint64_t next_serial_ = 0;
  std::uint64_t popped_ = 0;
};

}  // namespace spillway::sim
