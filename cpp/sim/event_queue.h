#pragma once

#include <cstdint>
#include <vector>

#include "sim/phase.h"
#include "sim/time.h"

namespace spillway::sim {

/// What happens, to whom, when. `tie` orders events of one phase and instant; `subject` is the
/// index of the request or instance concerned, in whichever table the phase implies.
struct Event {
  Time time;
  Phase phase = Phase::step_end;
  std::uint32_t tie = 0;
  std::uint32_t subject = 0;
};

/// Pending events, earliest first by (time, phase, tie, order of creation). A 4-ary heap; allocates
/// only while it grows beyond its largest size so far.
class EventQueue {
 public:
  void push(const Event& event);
  /// Precondition: not empty.
  Event pop();
  const Event& top() const { return heap_.front().event; }
  bool empty() const { return heap_.empty(); }
  /// Number of events taken out so far.
  std::uint64_t popped() const { return popped_; }

 private:
  struct Entry {
    Event event;
    std::uint64_t serial;
  };
  static bool before(const Entry& a, const Entry& b);

  std::vector<Entry> heap_;
  std::uint64_t next_serial_ = 0;
  std::uint64_t popped_ = 0;
};

}  // namespace spillway::sim
