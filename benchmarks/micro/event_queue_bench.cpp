// Nanoseconds per event that is taken from the queue and replaced by a new one.
#include "sim/event_queue.h"

#include "measure.h"

using spillway::sim::Event;
using spillway::sim::EventQueue;
using spillway::sim::kForever;
using spillway::sim::Phase;
using spillway::sim::Time;

namespace {

constexpr std::uint64_t kSpread_ns = 10'000'000;

// The hold model: the earliest event is taken, and another one is pushed some time later.
void hold(std::size_t pending) {
  EventQueue queue;
  micro::Sequence gaps(kSpread_ns);
  for (std::uint32_t i = 0; i < pending; ++i)
    queue.push({Time{gaps.next()}, Phase::source_arrival, i, i});
  micro::measure("events_hold", pending, [&](std::size_t operations) {
    Event event;
    for (std::size_t i = 0; i < operations; ++i) {
      queue.pop(kForever, event);
      const Time next = event.time() + Time{gaps.next()};
      queue.push({next, Phase::source_arrival, event.tie(), event.subject()});
    }
    micro::keep(event);
  });
}

// An event for the current instant is taken immediately, with other events pending.
void immediate(std::size_t pending) {
  EventQueue queue;
  micro::Sequence gaps(kSpread_ns);
  for (std::uint32_t i = 0; i < pending; ++i) {
    queue.push({Time{1'000'000 + gaps.next()}, Phase::source_arrival, i, i});
  }
  micro::measure("events_immediate", pending, [&](std::size_t operations) {
    Event event;
    for (std::size_t i = 0; i < operations; ++i) {
      queue.push({Time{1000}, Phase::routing, 0, static_cast<std::uint32_t>(i)});
      queue.pop(kForever, event);
      micro::keep(event);
    }
  });
}

// The owner of an expired alarm sets it anew.
void alarms(std::size_t owners) {
  EventQueue queue(owners);
  micro::Sequence gaps(kSpread_ns);
  for (std::uint32_t i = 0; i < owners; ++i) queue.set_alarm(i, Time{gaps.next()});
  micro::measure("alarms_hold", owners, [&](std::size_t operations) {
    Event event;
    for (std::size_t i = 0; i < operations; ++i) {
      queue.pop(kForever, event);
      queue.set_alarm(event.subject(), event.time() + Time{gaps.next()});
    }
    micro::keep(event);
  });
}

}  // namespace

int main() {
  for (const std::size_t pending : {10, 100, 1000, 10'000}) hold(pending);
  for (const std::size_t pending : {10, 100, 1000, 10'000}) immediate(pending);
  for (const std::size_t owners : {8, 64, 1000}) alarms(owners);
}
