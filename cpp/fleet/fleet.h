#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/autoscaler.h"
#include "sim/ids.h"
#include "sim/schema/field.h"
#include "sim/time.h"

namespace spillway::fleet {

/// From then on there should be so many instances.
struct FleetChange {
  double at_s = 0;
  std::int64_t instances = 1;

  static constexpr std::string_view type_name = "FleetChange";
  static constexpr std::string_view doc = "From then on there should be so many instances.";
  static void fields(auto field) {
    field("at_s", &FleetChange::at_s, "When it is decided.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("instances", &FleetChange::instances, "How many there should be.")
        .unit("instances")
        .range(sim::between(0, 100000));
  }
};

/// Which of the simulation's instances are there when.
struct Fleet {
  std::optional<std::int64_t> initial_instances;
  std::vector<FleetChange> schedule;
  Autoscaler autoscaler = NoAutoscaler{};
  double startup_s = 40;
  std::optional<double> reported_ready_after_s;

  static constexpr std::string_view type_name = "Fleet";
  static constexpr std::string_view doc =
      "Which of the simulation's instances are there when. They join in the order in which they "
      "are listed and leave in the reverse order; one that leaves gets no more requests and "
      "finishes those it has. While none is ready, requests wait in the gateway's queues.";
  static void fields(auto field) {
    field("initial_instances", &Fleet::initial_instances,
          "Instances that are ready from the start; absent: all.")
        .unit("instances")
        .range(sim::between(0, 100000));
    field("schedule", &Fleet::schedule, "Changes of their number.");
    field("autoscaler", &Fleet::autoscaler, "What else changes their number.");
    field("startup_s", &Fleet::startup_s,
          "Time from the decision to add an instance until it serves.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("reported_ready_after_s", &Fleet::reported_ready_after_s,
          "Time from the decision until the gateway takes it for ready; requests that it is "
          "sent before it serves wait there. Absent: when it serves.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
  }
  bool is_constant() const {
    return !initial_instances && schedule.empty() &&
           std::holds_alternative<NoAutoscaler>(autoscaler);
  }
};

/// Which instances are there, and since when they serve.
class FleetState {
 public:
  /// `num_instances`: of the whole simulation.
  FleetState(const Fleet& config, std::size_t num_instances);

  /// There should be so many instances, as far as the simulation has them.
  void resize(std::int64_t instances, sim::Time now);
  /// When some instance becomes ready next; kForever: none does.
  sim::Time next_ready() const;
  /// Those that have become ready by `now` count.
  void update(sim::Time now);

  /// Those that are ready, in order; while none is, those that were last. Never empty.
  std::span<const sim::InstanceId> ready() const { return ready_; }
  /// So many are ready.
  std::int64_t num_ready() const { return num_ready_; }
  /// Those that are there, ready or not.
  std::int64_t started() const { return static_cast<std::int64_t>(ready_at_.size()); }
  /// The instance takes no request into its queue earlier.
  sim::Time serves_at(sim::InstanceId id) const {
    return id.index() < serves_at_.size() ? serves_at_[id.index()] : sim::Time{0};
  }

 private:
  std::size_t num_instances_;
  sim::Time startup_;
  sim::Time reported_;
  // The first instances of the simulation are there: of each, when it becomes ready. Those that
  // have left may still serve.
  std::vector<sim::Time> ready_at_;
  std::vector<sim::Time> serves_at_;
  std::vector<sim::InstanceId> ready_{sim::InstanceId{}};
  std::int64_t num_ready_ = 0;
};

}  // namespace spillway::fleet
