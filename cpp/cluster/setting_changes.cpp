#include "cluster/setting_changes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/phase.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

namespace {

bool has_target(std::span<const Version> versions) {
  return std::ranges::any_of(versions,
                             [](const Version& version) { return version.targets.are_stated(); });
}

}  // namespace

void SettingChanges::start() {
  for (const Version& version : to_come()) schedule(version.from);
}

bool SettingChanges::add(const sim::Value::Map& values, sim::Time at, bool has_given_up) {
  std::vector<Version> next = versions_from(context_.simulation, versions_, at, values);
  for (const Version& version : next) {
    const bool is_measured = (context_.needs | needs_of(version.simulation)) == context_.needs &&
                             (context_.follows_loads || !depends_on_loads(version.simulation));
    if (!is_measured) return false;
  }
  if (has_given_up && has_target(next)) return false;
  forget_past();
  const auto num_derived_again = static_cast<std::ptrdiff_t>(next.size()) - 1;
  versions_.erase(versions_.end() - num_derived_again, versions_.end());
  versions_.insert(versions_.end(), std::make_move_iterator(next.begin()),
                   std::make_move_iterator(next.end()));
  schedule(at);
  return true;
}

std::optional<DueChange> SettingChanges::take_due() {
  if (next_ == versions_.size() || versions_[next_].from > context_.now) return std::nullopt;
  const Simulation& from = next_ == 0 ? context_.simulation : versions_[next_ - 1].simulation;
  return change_to(versions_[next_++], from);
}

std::optional<DueChange> SettingChanges::since_start() const {
  if (next_ == 0) return std::nullopt;
  return change_to(versions_[next_ - 1], context_.simulation);
}

DueChange SettingChanges::change_to(const Version& version, const Simulation& from) const {
  DueChange due{.from = from, .to = version, .tenants = {}};
  const Simulation& to = due.to.simulation;
  for (std::size_t i = 0; i < to.tenants.size(); ++i) {
    if (!sim::differ(from.tenants[i], to.tenants[i])) continue;
    due.are_tenants_new = true;
    due.are_weights_new |= from.tenants[i].weight != to.tenants[i].weight;
  }
  due.concerns_gateways = due.are_tenants_new || sim::differ(from.gateway, to.gateway) ||
                          sim::differ(from.router, to.router);
  if (!due.concerns_gateways) return due;
  due.tenants = context_.requests.tenants;
  for (workload::Tenant& tenant : due.tenants) {
    const auto own = std::ranges::find(to.tenants, tenant.name, &workload::Tenant::name);
    if (own != to.tenants.end()) tenant = *own;
  }
  return due;
}

bool SettingChanges::will_set_target() const { return has_target(to_come()); }

void SettingChanges::schedule(sim::Time at) {
  context_.events.push({at, sim::Phase::settings_change, 0, 0});
}

// All before the one in force: a session may change settings at every tick.
void SettingChanges::forget_past() {
  if (next_ <= 1) return;
  versions_.erase(versions_.begin(), versions_.begin() + static_cast<std::ptrdiff_t>(next_) - 1);
  next_ = 1;
}

}  // namespace spillway::cluster
