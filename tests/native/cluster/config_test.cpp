// The codec of configurations: round trips, all violations at once, dotted paths.
#include <limits>
#include <string>

#include "check.h"
#include "cluster/config.h"
#include "sim/schema/codec.h"

using spillway::cluster::Simulation;
using spillway::sim::ConfigError;
using spillway::sim::encode;
using spillway::sim::from_value;
using spillway::sim::Value;
using spillway::sim::Violation;
using spillway::sim::with_path;

namespace {

std::string error_of(const Value& settings) {
  try {
    from_value<Simulation>(settings);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void defaults_are_valid_and_round_trip() {
  const Simulation defaults;
  spillway::sim::check(defaults);
  const Value written = encode(defaults);
  check(encode(from_value<Simulation>(written)) == written,
        "the written form reads back as itself");
}

void every_violation_is_reported() {
  const Value settings = Value::Map{
      {"quantum_ns", Value(std::int64_t{0})},
      {"warm_up_s", Value(std::numeric_limits<double>::quiet_NaN())},
      {"routr", Value("round_robin")},
      {"gateway",
       Value(Value::Map{{"admission", Value(Value::Map{{"kind", Value("tokenbucket")}})}})}};
  const std::string error = error_of(settings);
  check(contains(error, "quantum_ns = 0: must be >= 1"), error);
  check(contains(error, "warm_up_s = nan"), error);
  check(contains(error, "routr = 'round_robin': unknown setting; did you mean 'router'?"), error);
  check(contains(error, "gateway.admission[0].kind = 'tokenbucket'"), error);
  check(contains(error, "did you mean 'token_bucket'?"), error);
}

void short_forms_mean_what_they_stand_for() {
  const Value short_form =
      Value::Map{{"router", Value("least_loaded")},
                 {"instances", Value(Value::Map{{"count", Value(std::int64_t{3})}})}};
  const auto simulation = from_value<Simulation>(short_form);
  check(std::holds_alternative<spillway::router::LeastLoaded>(simulation.router), "a bare kind");
  check(simulation.instances.size() == 1 && simulation.instances[0].count == 3, "a list of one");
}

void paths_address_entries_by_index_name_and_kind() {
  Simulation simulation;
  simulation.tenants = {{.name = "gold"}, {.name = "free"}, {.name = "default"}};
  std::vector<Violation> violations;
  Value value = encode(simulation);
  value = with_path(value, "tenants[gold].weight", Value(3.0), violations);
  value = with_path(value, "tenants[1].weight", Value(0.5), violations);
  value = with_path(value, "gateway.admission[always_admit]", Value("reject_all"), violations);
  value = with_path(value, "instances.count", Value(std::int64_t{2}), violations);
  check(violations.empty(), "all paths exist");
  const auto changed = from_value<Simulation>(value);
  check(changed.tenants[0].weight == 3.0 && changed.tenants[1].weight == 0.5, "weights");
  check(std::holds_alternative<spillway::gateway::RejectAll>(changed.gateway.admission[0]),
        "policy");
  check(changed.instances[0].count == 2, "a list of one needs no index");

  with_path(value, "tenants[silver].weight", Value(1.0), violations);
  with_path(value, "gatway", Value(1.0), violations);
  with_path(value, "gateway..x", Value(1.0), violations);
  with_path(value, "", Value(1.0), violations);
  check(violations.size() == 4, "unknown paths are violations");
  check(contains(violations[1].allowed, "did you mean 'gateway'?"), violations[1].allowed);
}

}  // namespace

CASES(defaults_are_valid_and_round_trip, every_violation_is_reported,
      short_forms_mean_what_they_stand_for, paths_address_entries_by_index_name_and_kind);
