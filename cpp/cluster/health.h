#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cluster/context.h"
#include "fleet/faults.h"
#include "fleet/fleet.h"
#include "instance/fallible.h"
#include "instance/instance.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// A fault that has begun.
struct FaultReport {
  std::string_view kind;
  std::int32_t instance = -1;  ///< -1: the fault is of a replica of the gateway
  std::int32_t gateway = -1;   ///< the replica; -1: the fault is of an instance
  sim::Time began{0};
  sim::Time detected = sim::kUnset;  ///< kUnset: not
  /// When the instance served again, went on, or had its speed again; kUnset: not by the end.
  sim::Time ended = sim::kUnset;
  instance::Loss loss{};
};

/// When instances fail, by schedule and at random, when they return, and when the gateway notices:
/// the timers of `instance::Fallible`. Made only if instances may fail.
class Health {
 public:
  /// `instances`: all of them; `state`: where the gateway notices. Both must outlive this.
  Health(Context& context, std::span<const std::unique_ptr<instance::Instance>> instances,
         fleet::FleetState& state);

  /// Schedules the faults of the simulation, and the first breakdowns.
  void start();
  /// One more fault, at an instant after all that has happened.
  void add(const fleet::Fault& fault, sim::Time at);
  /// An event of phase `fleet_change` of an instance, whose number it returns. `continues`:
  /// requests are in the system or to come, so there will be further breakdowns.
  sim::InstanceId handle(const sim::Event& event, bool continues);

  /// Whether an instance in service that is known to have failed will be ready again. `among`:
  /// these; empty: all.
  bool will_recover(std::span<const sim::InstanceId> among) const;
  /// Of an instance: up, hung, restarting (from its crash on, if it is to serve again), or down.
  std::string_view condition_of(sim::InstanceId id) const;
  /// Whether anything is to happen.
  bool has_timers() const { return timers_.size() > unused_.size(); }
  /// The run has ended.
  void close();
  const std::vector<FaultReport>& reports() const { return reports_; }

 private:
  enum class Kind : std::uint8_t {
    begins,
    breaks_down,
    restarts,
    serves,
    is_reported,
    is_detected,
    goes_on,
    has_speed
  };
  struct Timer {
    Kind kind = Kind::begins;
    std::uint32_t life = 0;  // an event of an earlier life of the instance has no effect
    fleet::Fault fault{};    // that begins
  };
  struct OfInstance {
    std::uint32_t life = 0;              // number of crashes and hangs
    std::uint32_t speed = 0;             // number of changes of speed
    sim::Time restart = sim::kForever;   // of an instance that is down
    sim::Time reported = sim::kForever;  // of an instance that was started again
    bool is_known = false;               // the gateway knows that it has failed
    std::uint64_t breakdowns = 0;
    bool breaks_down = false;  // a breakdown is scheduled
    std::size_t failure = 0;   // report of its last crash or hang
    std::size_t slowdown = 0;  // report of its last slowdown
    bool is_slow = false;
  };

  instance::Fallible& at(sim::InstanceId id) const { return *instances_[id.index()]->fallible(); }
  void push(sim::Time at, sim::InstanceId id, const Timer& timer);
  void push(sim::Time at, sim::InstanceId id, Kind kind);
  void begin(const fleet::Crash& fault, sim::InstanceId id);
  void begin(const fleet::Hang& fault, sim::InstanceId id);
  void begin(const fleet::Slowdown& fault, sim::InstanceId id);
  void begin(const fleet::KvLoss& fault, sim::InstanceId id);
  void break_down(sim::InstanceId id);
  void schedule_breakdown(sim::InstanceId id);
  std::size_t report(std::string_view kind, sim::InstanceId id);
  void settle(sim::InstanceId id);
  void crash(sim::InstanceId id, sim::Time restart);
  void detect(sim::InstanceId id);
  void set_known(sim::InstanceId id, bool is_known);
  void restore_speed(sim::InstanceId id);

  Context& context_;
  std::span<const std::unique_ptr<instance::Instance>> instances_;
  fleet::FleetState& state_;
  sim::Time detected_after_;
  sim::Time startup_;
  sim::Time reported_after_;
  std::vector<OfInstance> of_;
  std::vector<Timer> timers_;          // by the subject of their events
  std::vector<std::uint32_t> unused_;  // of the timers
  std::vector<FaultReport> reports_;
};

}  // namespace spillway::cluster
