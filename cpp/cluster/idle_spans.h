#pragma once

#include <algorithm>
#include <cstdint>

#include "cluster/context.h"
#include "gateway/pipeline.h"
#include "sim/event_queue.h"
#include "sim/phase.h"
#include "sim/time.h"

namespace spillway::cluster {

/// When an empty system skips what is periodic and changes nothing there: ticks, scrapes, polls of
/// the autoscaler. The events at which it would happen are left out.
class IdleSpans {
 public:
  /// `is_reference`: nothing is skipped.
  IdleSpans(Context& context, bool is_reference);

  /// Calls `skip_until` with the time before which nothing happens but ticks, scrapes and samples,
  /// which change nothing for each other in an empty system. It returns the time that was skipped.
  /// The pending events are looked through seldom while that yields nothing. `until`: up to which
  /// events are handled.
  sim::Time skip(sim::Time until, const auto& skip_until) {
    if (is_reference_ || ++num_chances_ < patience_) return sim::Time{0};
    num_chances_ = 0;
    const sim::Time next = context_.events.next_due_besides(kPeriodic);
    const sim::Time skipped = skip_until(std::min(until + sim::Time{1}, next));
    patience_ = skipped > sim::Time{0} ? kLeastPatience : std::min(2 * patience_, kMostPatience);
    return skipped;
  }

  /// Whether metrics of the instances, as gateways see them, stay the same while the system is
  /// empty. `counters`: of all gateways. To be called at every tick.
  bool has_steady_metrics(const gateway::GatewayCounters& counters);

 private:
  static constexpr std::uint32_t kPeriodic = sim::EventQueue::bit_of(sim::Phase::controller_tick) |
                                             sim::EventQueue::bit_of(sim::Phase::telemetry) |
                                             sim::EventQueue::bit_of(sim::Phase::timeline_sample);
  static constexpr std::int64_t kLeastPatience = 8;
  static constexpr std::int64_t kMostPatience = 4096;

  Context& context_;
  bool is_reference_;
  sim::Time settling_time_;  // of the metrics of an empty system; kForever: they never settle
  std::int64_t attempts_before_ = 0;        // when the system was last seen to become empty
  sim::Time empty_since_{0};                // the system has been empty at every tick
  std::int64_t num_chances_ = 0;            // to skip, since the pending events were looked through
  std::int64_t patience_ = kLeastPatience;  // chances until the next time
};

}  // namespace spillway::cluster
