#include "cluster/changes.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include "sim/schema/codec.h"

namespace spillway::cluster {

using sim::Value;
using sim::Violation;

namespace {

constexpr std::string_view kTarget = "fleet.target_instances";
constexpr std::string_view kMonitor = "busy_monitor";
constexpr std::string_view kNotChangeable = "cannot change during a run";

// The simulation with new values by path. Unset: a violation has been added.
std::optional<Simulation> with(const Simulation& from, const Value::Map& set,
                               std::vector<Violation>& out) {
  const std::size_t before = out.size();
  Value settings = sim::encode(from);
  for (const auto& [path, value] : set) {
    settings = sim::with_path(std::move(settings), path, value, out);
  }
  if (out.size() > before) return std::nullopt;
  try {
    return sim::from_value<Simulation>(settings);
  } catch (const sim::ConfigError& error) {
    out.insert(out.end(), error.violations().begin(), error.violations().end());
    return std::nullopt;
  }
}

// That each difference is in a setting that can change.
void check_changeable(const Simulation& from, const Simulation& to, std::vector<Violation>& out) {
  for (const sim::Difference& one : sim::differences(sim::type_of<Simulation>(), &from, &to)) {
    if (one.field && one.field->is_runtime) continue;
    out.push_back({one.path, "", std::string(kNotChangeable)});
  }
}

signals::BusyThresholdChange thresholds_of(const signals::BusyMonitor& monitor, double at_s) {
  return {.at_s = at_s,
          .active_decode_blocks_threshold = monitor.active_decode_blocks_threshold,
          .active_prefill_tokens_threshold = monitor.active_prefill_tokens_threshold,
          .active_prefill_tokens_threshold_frac = monitor.active_prefill_tokens_threshold_frac};
}

bool have_equal_thresholds(const signals::BusyMonitor& a, const signals::BusyMonitor& b) {
  return a.active_decode_blocks_threshold == b.active_decode_blocks_threshold &&
         a.active_prefill_tokens_threshold == b.active_prefill_tokens_threshold &&
         a.active_prefill_tokens_threshold_frac == b.active_prefill_tokens_threshold_frac;
}

// A threshold that is taken away is not part of a schedule, where unset means unchanged.
void check_thresholds_stay(const signals::BusyMonitor& from, const signals::BusyMonitor& to,
                           std::vector<Violation>& out) {
  const auto check = [&](const auto& before, const auto& after, std::string_view name) {
    if (!before || after) return;
    out.push_back({sim::join_path(std::string(kMonitor), name), "null",
                   "must be a number: a threshold that is in force can be raised, not removed"});
  };
  check(from.active_decode_blocks_threshold, to.active_decode_blocks_threshold,
        "active_decode_blocks_threshold");
  check(from.active_prefill_tokens_threshold, to.active_prefill_tokens_threshold,
        "active_prefill_tokens_threshold");
  check(from.active_prefill_tokens_threshold_frac, to.active_prefill_tokens_threshold_frac,
        "active_prefill_tokens_threshold_frac");
}

}  // namespace

std::optional<Simulation> changed(const Simulation& from, const Value::Map& set,
                                  std::vector<Violation>& out) {
  const std::size_t before = out.size();
  std::optional<Simulation> to = with(from, set, out);
  if (to) {
    check_changeable(from, *to, out);
    check_thresholds_stay(from.busy_monitor, to->busy_monitor, out);
  }
  if (out.size() > before) return std::nullopt;
  return to;
}

bool is_scheduled(const Value::Map& set) {
  return std::ranges::any_of(set, [](const auto& entry) {
    return entry.first == kTarget || entry.first.starts_with(kMonitor);
  });
}

Versions versions_of(const Simulation& simulation, std::vector<Violation>& out) {
  Versions all{.first = simulation, .later = {}};
  all.first.changes.clear();
  std::vector<std::size_t> order(simulation.changes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return simulation.changes[a].at_s < simulation.changes[b].at_s;
  });
  std::vector<fleet::FleetChange> targets;
  std::vector<signals::BusyThresholdChange> thresholds;
  Simulation current = all.first;
  for (const std::size_t i : order) {
    const Change& change = simulation.changes[i];
    Value::Map set = *change.set.get_if<Value::Map>();
    std::vector<Violation> found;
    const auto target = std::ranges::find(set, kTarget, &std::pair<std::string, Value>::first);
    if (target != set.end()) {
      const auto next = with(all.first, {{"fleet.initial_instances", target->second}}, found);
      for (Violation& one : found) one.path = kTarget;
      if (next && next->fleet.initial_instances) {
        targets.push_back({.at_s = change.at_s, .instances = *next->fleet.initial_instances});
      } else if (next) {
        found.push_back({std::string(kTarget), "null", "must be a whole number"});
      }
      set.erase(target);
    }
    std::optional<Simulation> next = changed(current, set, found);
    const std::string place = sim::index_path("changes", i) + ".set";
    for (const Violation& one : found) {
      out.push_back({place + "[" + one.path + "]", one.value, one.allowed});
    }
    if (!next || !found.empty()) continue;
    if (!have_equal_thresholds(current.busy_monitor, next->busy_monitor)) {
      thresholds.push_back(thresholds_of(next->busy_monitor, change.at_s));
    }
    current = *next;
    all.later.push_back({sim::from_seconds(change.at_s), std::move(*next)});
  }
  auto& schedule = all.first.fleet.schedule;
  schedule.insert(schedule.end(), targets.begin(), targets.end());
  auto& monitored = all.first.busy_monitor.schedule;
  monitored.insert(monitored.end(), thresholds.begin(), thresholds.end());
  return all;
}

Versions versions_of(const Simulation& simulation) {
  std::vector<Violation> violations;
  Versions all = versions_of(simulation, violations);
  if (!violations.empty()) throw sim::ConfigError(std::move(violations));
  return all;
}

}  // namespace spillway::cluster
