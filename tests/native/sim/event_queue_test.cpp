// Events are taken by (time, phase, tie, order of creation), for any order of insertion; an alarm
// is the event of phase step_end of its owner.
#include "sim/event_queue.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "check.h"
#include "sim/rng.h"

using spillway::sim::Draws;
using spillway::sim::Event;
using spillway::sim::EventQueue;
using spillway::sim::kForever;
using spillway::sim::Phase;
using spillway::sim::Stream;
using spillway::sim::Time;

namespace {

Event next(EventQueue& queue, Time horizon = kForever) {
  Event event;
  check(queue.pop(horizon, event), "there is another event");
  return event;
}

bool is_over(EventQueue& queue, Time horizon = kForever) {
  Event event;
  return !queue.pop(horizon, event);
}

auto key(const Event& event) { return std::tuple(event.time(), event.phase(), event.tie()); }

void order_equals_that_of_a_stable_sort() {
  for (std::uint64_t round = 0; round < 200; ++round) {
    Draws draws(round, Stream::arrivals, 0);
    EventQueue queue;
    std::vector<Event> reference;
    const std::uint64_t size = draws.below(300);
    for (std::uint32_t i = 0; i < size; ++i) {
      const Event event{Time{static_cast<std::int64_t>(draws.below(5))},
                        static_cast<Phase>(draws.below(13)),
                        static_cast<std::uint32_t>(draws.below(3)), i};
      queue.push(event);
      reference.push_back(event);
    }
    std::stable_sort(reference.begin(), reference.end(),
                     [](const Event& a, const Event& b) { return key(a) < key(b); });
    for (const Event& expected : reference) {
      check(next(queue).subject() == expected.subject(), "events are in order");
    }
    check(is_over(queue), "nothing is left");
    check(queue.popped() == size, "every event was counted");
  }
}

void next_of_other_phases_is_the_earliest_of_all_kinds() {
  const std::uint32_t ticks = EventQueue::bit_of(Phase::controller_tick);
  for (std::uint64_t round = 0; round < 200; ++round) {
    Draws draws(round, Stream::arrivals, 1);
    EventQueue queue(2);
    Time expected = kForever;
    const std::uint64_t size = draws.below(60);
    for (std::uint32_t i = 0; i < size; ++i) {
      const Time at{static_cast<std::int64_t>(draws.below(1000))};
      const bool is_tick = draws.below(3) > 0;
      queue.push({at, is_tick ? Phase::controller_tick : Phase::routing, 0, i});
      if (!is_tick) expected = std::min(expected, at);
    }
    check(queue.size() == size, "all are pending");
    check(queue.next_due_besides(ticks) == expected, "the earliest that is no tick");
    queue.set_source(Time{500});
    expected = std::min(expected, Time{500});
    check(queue.next_due_besides(ticks) == expected, "the source counts");
    queue.set_alarm(1, Time{200});
    check(queue.next_due_besides(ticks) == std::min(expected, Time{200}), "and so do alarms");
  }
}

void event_for_the_current_instant_takes_its_phase() {
  EventQueue queue;
  queue.push({Time{7}, Phase::admission, 0, 1});
  queue.push({Time{7}, Phase::admission, 1, 2});
  check(next(queue).subject() == 1, "the first admission");
  queue.push({Time{7}, Phase::queue_drain, 0, 3});
  check(next(queue).subject() == 3, "its drain precedes the next admission");
  check(next(queue).subject() == 2, "the second admission");
}

void nothing_beyond_the_horizon_comes_out() {
  EventQueue queue(1);
  check(is_over(queue), "an empty queue");
  check(queue.next_due() == kForever, "nothing is due");
  queue.push({Time{5}, Phase::source_arrival, 0, 1});
  queue.push({Time{9}, Phase::source_arrival, 0, 2});
  queue.set_alarm(0, Time{7});
  check(is_over(queue, Time{4}), "all lies beyond the horizon");
  check(queue.next_due() == Time{5}, "the first event is due next");
  check(next(queue, Time{5}).subject() == 1, "an event on the horizon");
  check(is_over(queue, Time{6}), "the alarm lies beyond the horizon");
  check(queue.next_due() == Time{7}, "the alarm is due next");
  check(next(queue, Time{7}).phase() == Phase::step_end, "the alarm on the horizon");
  queue.clear_alarm(0);
  check(is_over(queue, Time{8}), "the last event lies beyond the horizon");
  check(queue.popped() == 2, "what stayed was not counted");
  check(next(queue).subject() == 2, "the last event");
}

void alarm_is_replaced_and_cleared() {
  EventQueue queue(3);
  queue.set_alarm(2, Time{10});
  queue.set_alarm(2, Time{20});
  queue.set_alarm(1, Time{15});
  queue.set_alarm(1, Time{5});
  queue.set_alarm(0, Time{1});
  queue.clear_alarm(0);
  const Event first = next(queue);
  check(first.time() == Time{5} && first.phase() == Phase::step_end, "when and what");
  check(first.subject() == 1 && first.tie() == 1, "the owner is subject and tie");
  queue.set_alarm(1, Time{30});
  check(next(queue).time() == Time{20}, "the later setting counts");
  queue.clear_alarm(2);
  check(next(queue).time() == Time{30}, "set anew after it came out");
  queue.clear_alarm(1);
  queue.clear_alarm(1);
  check(is_over(queue), "no alarm is set");
}

void alarm_precedes_later_phases_of_its_instant() {
  EventQueue queue(4);
  queue.push({Time{7}, Phase::permit_release, 0, 10});
  queue.push({Time{7}, Phase::step_start, 0, 11});
  queue.push({Time{7}, Phase::step_end, 2, 12});
  queue.set_alarm(3, Time{7});
  queue.set_alarm(1, Time{7});
  check(next(queue).subject() == 1, "the lower owner");
  queue.clear_alarm(1);
  check(next(queue).subject() == 12, "an event of phase step_end between the two");
  check(next(queue).subject() == 3, "the higher owner");
  queue.clear_alarm(3);
  check(next(queue).subject() == 10, "then permits");
  queue.set_alarm(0, Time{7});
  check(next(queue).subject() == 0, "an alarm for the current instant takes its phase");
  queue.clear_alarm(0);
  check(next(queue).subject() == 11, "steps start last");
}

void dueness_of_events_and_alarms() {
  EventQueue queue(3);
  check(!queue.is_due(Time{100}) && !queue.is_due(Time{100}, 1), "nothing is there");
  queue.set_alarm(1, Time{5});
  check(!queue.is_due(Time{4}), "the alarm is later");
  check(queue.is_due(Time{5}) && queue.is_due(Time{6}), "the alarm is due");
  check(!queue.is_due(Time{6}, 1), "apart from its owner's");
  check(queue.is_due(Time{6}, 0) && queue.is_due(Time{6}, 2), "to all others");
  queue.set_alarm(2, Time{6});
  check(!queue.is_due(Time{5}, 1) && queue.is_due(Time{6}, 1), "another owner's alarm");
  queue.clear_alarm(1);
  queue.clear_alarm(2);
  queue.push({Time{3}, Phase::source_arrival, 0, 0});
  check(!queue.is_due(Time{2}) && queue.is_due(Time{3}) && queue.is_due(Time{3}, 1), "an event");
  queue.push({Time{2}, Phase::source_arrival, 0, 0});
  next(queue);
  check(!queue.is_due(Time{2}) && queue.is_due(Time{3}, 0), "an event behind another");
}

void a_disregarded_alarm_is_not_due() {
  EventQueue queue(3);
  queue.set_alarm(0, Time{5});
  queue.set_alarm(1, Time{5});
  check(next(queue).subject() == 0, "the alarm of 0");
  queue.disregard_alarm(0);
  check(!queue.is_due(Time{4}, 0) && queue.is_due(Time{5}, 0), "to 0: that of 1");
  check(!queue.is_due(Time{5}, 1), "to 1: none");
  check(queue.is_due(Time{5}), "that of 1");
  queue.set_alarm(1, Time{7});
  check(!queue.is_due(Time{5}), "none");
  queue.set_alarm(0, Time{6});
  check(queue.is_due(Time{6}) && next(queue).subject() == 0, "set anew, it is due again");
  queue.disregard_alarm(0);
  queue.set_alarm(0, Time{6});
  check(queue.is_due(Time{6}) && next(queue).subject() == 0, "also without a question between");
}

/// Events, alarms and the source in plain lists.
class Reference {
 public:
  explicit Reference(std::size_t owners) : alarms_(owners) {}

  void push(const Event& event) { events_.push_back(event); }
  /// The source's event is like any other.
  void set_source(Time time) {
    if (time < kForever) push({time, Phase::source_arrival, 0, 0});
  }
  void set_alarm(std::uint32_t owner, std::optional<Time> time) { alarms_[owner] = time; }

  std::optional<Event> pop(Time horizon) {
    std::vector<Event> all = events_;
    for (std::uint32_t owner = 0; owner < alarms_.size(); ++owner) {
      if (alarms_[owner]) all.emplace_back(*alarms_[owner], Phase::step_end, owner, owner);
    }
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return key(all[a]) < key(all[b]); });
    if (order.empty() || all[order[0]].time() > horizon) return std::nullopt;
    const Event first = all[order[0]];
    if (order[0] < events_.size()) {
      events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(order[0]));
    } else {
      alarms_[first.subject()].reset();
    }
    return first;
  }

  bool is_due(Time now, std::optional<std::uint32_t> apart_from = {}) const {
    bool due = std::any_of(events_.begin(), events_.end(),
                           [&](const Event& event) { return event.time() <= now; });
    for (std::uint32_t owner = 0; owner < alarms_.size(); ++owner) {
      due = due || (owner != apart_from && alarms_[owner] && *alarms_[owner] <= now);
    }
    return due;
  }

 private:
  std::vector<Event> events_;
  std::vector<std::optional<Time>> alarms_;
};

// Pushes no event of phase step_end, so that an alarm never ties with an event, and none of phase
// source_arrival, which is the source's.
void random_use_equals_the_reference() {
  std::vector<Phase> pushed;
  for (int i = 1; i <= static_cast<int>(Phase::step_start); ++i) {
    if (static_cast<Phase>(i) != Phase::source_arrival) pushed.push_back(static_cast<Phase>(i));
  }
  for (std::uint64_t round = 0; round < 300; ++round) {
    Draws draws(round, Stream::arrivals, 1);
    const auto owners = static_cast<std::uint32_t>(1 + draws.below(9));
    EventQueue queue(owners);
    Reference reference(owners);
    Time now{0};
    std::uint64_t popped = 0;
    bool has_source = false;
    const auto later = [&] { return now + Time{static_cast<std::int64_t>(draws.below(4))}; };
    for (std::uint32_t i = 0; i < 300; ++i) {
      const auto owner = static_cast<std::uint32_t>(draws.below(owners));
      const std::uint64_t action = draws.below(11);
      if (action < 4) {
        const Event event{later(), pushed[draws.below(pushed.size())],
                          static_cast<std::uint32_t>(draws.below(3)), i};
        queue.push(event);
        reference.push(event);
      } else if (action < 6) {
        const Time time = later();
        queue.set_alarm(owner, time);
        reference.set_alarm(owner, time);
      } else if (action == 6) {
        queue.clear_alarm(owner);
        reference.set_alarm(owner, std::nullopt);
      } else if (action == 10) {
        if (has_source) continue;
        const Time time = draws.below(8) == 0 ? kForever : later();
        queue.set_source(time);
        reference.set_source(time);
        has_source = time < kForever;
      } else {
        const Time horizon = action == 7 ? later() : kForever;
        Event event;
        const bool found = queue.pop(horizon, event);
        const std::optional<Event> expected = reference.pop(horizon);
        check(found == expected.has_value(), "whether anything comes out");
        if (found) {
          check(key(event) == key(*expected) && event.subject() == expected->subject(),
                "the same event");
          if (event.phase() == Phase::step_end) queue.clear_alarm(event.subject());
          if (event.phase() == Phase::source_arrival) has_source = false;
          now = event.time();
          ++popped;
        }
      }
      const Time asked = later();
      check(queue.is_due(asked) == reference.is_due(asked), "whether anything is due");
      check(queue.is_due(asked, owner) == reference.is_due(asked, owner),
            "whether anything else is due");
      check(queue.popped() == popped, "the number of events");
    }
  }
}

}  // namespace

CASES(order_equals_that_of_a_stable_sort, next_of_other_phases_is_the_earliest_of_all_kinds,
      event_for_the_current_instant_takes_its_phase, nothing_beyond_the_horizon_comes_out,
      alarm_is_replaced_and_cleared, alarm_precedes_later_phases_of_its_instant,
      dueness_of_events_and_alarms, a_disregarded_alarm_is_not_due,
      random_use_equals_the_reference);
