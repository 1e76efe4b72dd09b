#include "cluster/changes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "sim/schema/codec.h"

namespace spillway::cluster {

using sim::Value;
using sim::Violation;

namespace {

/// A change with the place of its settings in the configuration; empty: it is not in there.
struct PlacedChange {
  sim::Time from;
  Value::Map set;
  std::string place;
};

Simulation without_changes(Simulation simulation) {
  simulation.changes.clear();
  return simulation;
}

// In order of time; those of one instant as they are listed.
std::vector<PlacedChange> changes_of(const Simulation& simulation) {
  std::vector<PlacedChange> all;
  for (std::size_t i = 0; i < simulation.changes.size(); ++i) {
    const Change& change = simulation.changes[i];
    const auto& set = *change.set.get_if<Value::Map>();
    if (set.empty()) continue;
    all.push_back({sim::from_seconds(change.at_s), set, sim::index_path("changes", i) + ".set"});
  }
  std::ranges::stable_sort(all, {}, &PlacedChange::from);
  return all;
}

bool is_below(std::string_view path, std::string_view field) {
  if (!path.starts_with(field)) return false;
  return path.size() == field.size() || path[field.size()] == '.' || path[field.size()] == '[';
}

// The settings that `set` may change: those of the groups in which its paths begin. All of them if
// a path begins in none, for its error.
Value concerned(const Simulation& from, const Value::Map& set) {
  const auto begins = [&](std::string_view field) {
    return [=](const auto& entry) { return is_below(entry.first, field); };
  };
  Value::Map groups;
  std::size_t known = 0;
  for (const sim::FieldInfo& field : sim::type_of<Simulation>().structure().fields) {
    const auto number = std::ranges::count_if(set, begins(field.name));
    if (number == 0) continue;
    known += static_cast<std::size_t>(number);
    groups.emplace_back(field.name, sim::encode(*field.type, sim::member(field, &from)));
  }
  return known == set.size() ? Value(std::move(groups)) : sim::encode(from);
}

// The simulation with new values by path. Unset: a violation has been added.
std::optional<Simulation> with(const Simulation& from, const Value::Map& set,
                               std::vector<Violation>& out) {
  const std::size_t before = out.size();
  Value settings = concerned(from, set);
  for (const auto& [path, value] : set) {
    settings = sim::with_path(std::move(settings), path, value, out);
  }
  if (out.size() > before) return std::nullopt;
  std::optional<Simulation> to = from;
  sim::decode(sim::type_of<Simulation>(), settings, &*to, "", out);
  sim::validate(sim::type_of<Simulation>(), &*to, "", out);
  if (out.size() > before) return std::nullopt;
  return to;
}

// The same, if each difference is in a setting that can change.
std::optional<Simulation> changed(const Simulation& from, const Value::Map& set,
                                  std::vector<Violation>& out) {
  std::optional<Simulation> to = with(from, set, out);
  if (!to) return std::nullopt;
  const std::size_t before = out.size();
  for (const sim::Difference& difference :
       sim::differences(sim::type_of<Simulation>(), &from, &*to)) {
    if (difference.field && difference.field->is_runtime) continue;
    out.push_back({difference.path, "", "cannot change during a run"});
  }
  if (out.size() > before) return std::nullopt;
  return to;
}

// What `set` states, or changes by a path above it.
Targets targets_of(const Value::Map& set, const fleet::Fleet& before, const fleet::Fleet& after) {
  const auto target = [&](std::string_view path, const auto& size, const auto& past) {
    const bool is_stated =
        std::ranges::find(set, path, &std::pair<std::string, Value>::first) != set.end();
    const bool differs = size.target_instances != past.target_instances;
    return is_stated || differs ? size.target_instances : std::nullopt;
  };
  return {.fleet = target("fleet.target_instances", after, before),
          .prefill = target("fleet.prefill.target_instances", after.prefill, before.prefill),
          .decode = target("fleet.decode.target_instances", after.decode, before.decode)};
}

// The versions that begin with `changes`. `start`: before them, without changes.
std::vector<Version> versions_by(const std::vector<PlacedChange>& changes, const Simulation& start,
                                 std::vector<Violation>& out) {
  std::vector<Version> versions;
  versions.reserve(changes.size());
  for (const PlacedChange& change : changes) {
    const Simulation& current = versions.empty() ? start : versions.back().simulation;
    std::vector<Violation> found;
    std::optional<Simulation> next = changed(current, change.set, found);
    for (Violation& violation : found) {
      if (!change.place.empty()) violation.path = change.place + "[" + violation.path + "]";
      out.push_back(std::move(violation));
    }
    if (!next) continue;
    const Targets targets = targets_of(change.set, current.fleet, next->fleet);
    versions.push_back({change.from, change.set, std::move(*next), targets});
  }
  return versions;
}

}  // namespace

std::vector<Version> later_versions(const Simulation& simulation, std::vector<Violation>& out) {
  const std::vector<PlacedChange> changes = changes_of(simulation);
  if (changes.empty()) return {};
  return versions_by(changes, without_changes(simulation), out);
}

std::vector<Version> later_versions(const Simulation& simulation) {
  std::vector<Violation> violations;
  std::vector<Version> versions = later_versions(simulation, violations);
  if (!violations.empty()) throw sim::ConfigError(std::move(violations));
  return versions;
}

std::vector<Version> versions_from(const Simulation& simulation, std::span<const Version> later,
                                   sim::Time from, const Value::Map& set) {
  const auto next = std::ranges::upper_bound(later, from, {}, &Version::from);
  std::vector<PlacedChange> changes{{from, set, {}}};
  for (auto version = next; version != later.end(); ++version) {
    changes.push_back({version->from, version->set, {}});
  }
  std::vector<Violation> violations;
  std::vector<Version> versions =
      next == later.begin() ? versions_by(changes, without_changes(simulation), violations)
                            : versions_by(changes, std::prev(next)->simulation, violations);
  if (!violations.empty()) throw sim::ConfigError(std::move(violations));
  return versions;
}

}  // namespace spillway::cluster
