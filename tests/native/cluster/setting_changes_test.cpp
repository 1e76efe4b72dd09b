// The versions of the settings: when each is due, what it concerns, and which changes a run takes.
#include "cluster/setting_changes.h"

#include <optional>

#include "actors.h"
#include "check.h"

using namespace spillway;
using cluster::Context;
using cluster::DueChange;
using cluster::SettingChanges;
using cluster::Simulation;
using sim::from_seconds;
using sim::Phase;
using sim::Value;

namespace {

struct ChangesSetup {
  explicit ChangesSetup(Simulation of) : simulation(std::move(of)) {}

  Simulation simulation;
  std::vector<cluster::Version> versions = cluster::later_versions(simulation);
  Context context{simulation, 1, nullptr, {}, true, versions};
  SettingChanges changes{context, versions};
};

Simulation limited() {
  Simulation simulation = simulation_of({{}}, {{.name = "gold"}, {.name = "free"}});
  simulation.gateway.limit = {gateway::FixedLimit{.max_in_flight = 4}};
  simulation.changes = {
      {.at_s = 1, .set = Value::Map{{"tenants[free].weight", Value(2.0)}}},
      {.at_s = 2, .set = Value::Map{{"fleet.target_instances", Value(std::int64_t{0})}}}};
  return simulation;
}

const gateway::FixedLimit& limit_of(const DueChange& change) {
  return std::get<gateway::FixedLimit>(change.to.simulation.gateway.limit.front());
}

void changes_are_due_in_order_of_time() {
  ChangesSetup setup(limited());
  setup.changes.start();
  check(!setup.changes.take_due(), "none at the start");
  check(setup.changes.will_set_target(), "the second states the number of instances");

  check(is(take(setup.context), Phase::settings_change, 1), "the first");
  const std::optional<DueChange> first = setup.changes.take_due();
  check(first && first->concerns_gateways && !first->to.targets.fleet, "concerns gateways");
  check(first->are_tenants_new && first->are_weights_new, "a weight is new");
  const gateway::TenantChange tenants = first->of_tenants();
  check(tenants.are_weights_new && tenants.to[0].weight == 1 && tenants.to[1].weight == 2,
        "the tenants of the run, with the new weight");
  check(!setup.changes.take_due(), "the other is not due");

  check(is(take(setup.context), Phase::settings_change, 2), "the second");
  const std::optional<DueChange> second = setup.changes.take_due();
  check(second && !second->concerns_gateways && second->to.targets.fleet == 0, "the fleet");
  check(!setup.changes.will_set_target() && !has_events(setup.context), "there is no other");
}

void an_added_change_builds_on_those_before_it() {
  ChangesSetup setup(limited());
  const auto add = [&](const char* path, Value value, double at_s, bool has_given_up = false) {
    return setup.changes.add({{path, std::move(value)}}, from_seconds(at_s), has_given_up);
  };
  check(add("gateway.limit[0].max_in_flight", Value(9.0), 1.5), "between the two");
  check(is(take(setup.context), Phase::settings_change, 1.5), "it is scheduled");
  check(limit_of(*setup.changes.take_due()).max_in_flight == 4, "before it");
  const std::optional<DueChange> added = setup.changes.take_due();
  check(added && limit_of(*added).max_in_flight == 9, "in force");
  check(added->to.simulation.tenants[1].weight == 2, "the change before it stays in force");
  check(!add("gateway.limit[0].max_in_flight", Value(3.0), 1.75, true),
        "the number of instances is derived again, which the run no longer waits for");
  check(!add("busy_monitor.active_prefill_tokens_threshold", Value(std::int64_t{5}), 1.75),
        "loads are not measured");
  check_throws<sim::ConfigError>([&] { add("quantum_ns", Value(std::int64_t{5}), 1.75); },
                                 "it cannot change");
  check(add("gateway.limit[0].max_in_flight", Value(3.0), 1.75), "past versions are forgotten");
  set_clock(setup.context, 2);
  check(limit_of(*setup.changes.take_due()).max_in_flight == 3, "the last one added");
  const std::optional<DueChange> last = setup.changes.take_due();
  check(last && last->to.targets.fleet == 0 && limit_of(*last).max_in_flight == 3,
        "the change after it is derived again");
  check(!setup.changes.take_due(), "there is no other");
}

}  // namespace

CASES(changes_are_due_in_order_of_time, an_added_change_builds_on_those_before_it);
