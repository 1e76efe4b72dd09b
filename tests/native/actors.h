#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "check.h"
#include "cluster/config.h"
#include "cluster/context.h"
#include "offered.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/phase.h"
#include "sim/time.h"
#include "workload/tenants.h"
#include "workload/trace.h"

// Helpers for tests of one actor of a run, which take the events of its context by hand.

/// A simulation that offers the requests, whose ids count from 0 in order of arrival.
inline spillway::cluster::Simulation simulation_of(
    const std::vector<Offered>& offered, std::vector<spillway::workload::Tenant> tenants = {{}},
    std::vector<spillway::workload::SloClass> slo_classes = {{}}) {
  spillway::cluster::Simulation simulation;
  simulation.workload =
      spillway::workload::Trace{.requests = make_requests(offered, tenants, slo_classes)};
  simulation.tenants = std::move(tenants);
  simulation.slo_classes = std::move(slo_classes);
  return simulation;
}

inline constexpr spillway::sim::InstanceId kFirstInstance{0};
inline constexpr spillway::sim::InstanceId kSecondInstance{1};

inline constexpr spillway::sim::Time kEnd =
    spillway::sim::from_seconds(spillway::sim::kLongestSpan_s);

/// Takes the earliest event and advances the clock to it. Precondition: there is one.
inline spillway::sim::Event take(spillway::cluster::Context& context) {
  spillway::sim::Event event;
  check(context.events.pop(kEnd, event), "an event is pending");
  context.begin(event);
  return event;
}
inline bool has_events(const spillway::cluster::Context& context) {
  return context.events.next_due() <= kEnd;
}
inline bool is(const spillway::sim::Event& event, spillway::sim::Phase phase, double at_s,
               std::uint32_t subject = 0) {
  return event.phase() == phase && event.time() == spillway::sim::from_seconds(at_s) &&
         event.subject() == subject;
}
inline void set_clock(spillway::cluster::Context& context, double at_s) {
  context.now = spillway::sim::from_seconds(at_s);
}
