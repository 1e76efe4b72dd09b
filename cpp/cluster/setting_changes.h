#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cluster/changes.h"
#include "cluster/config.h"
#include "cluster/context.h"
#include "gateway/bands.h"
#include "sim/time.h"
#include "sim/value.h"
#include "workload/tenants.h"

namespace spillway::cluster {

/// A change that is due.
struct DueChange {
  const Simulation& from;  ///< the settings before
  const Version& to;
  bool are_tenants_new = false;
  bool are_weights_new = false;
  bool concerns_gateways = false;
  std::vector<workload::Tenant> tenants;  ///< of the run; only if it concerns gateways

  gateway::TenantChange of_tenants() const { return {tenants, are_tenants_new, are_weights_new}; }
};

/// The versions of the settings, known from the start or added during the run, and when they are in
/// force.
class SettingChanges {
 public:
  /// `versions`: those after the start.
  SettingChanges(Context& context, std::vector<Version> versions)
      : context_(context), versions_(std::move(versions)) {}

  /// Schedules the changes that are to come.
  void start();
  /// One more change, at an instant after all that has happened. Throws ConfigError. False: this
  /// takes a run from the start, because of what this one has scheduled or measures.
  /// `has_given_up`: nothing periodic continues, because queued requests have no instance to wait
  /// for.
  bool add(const sim::Value::Map& values, sim::Time at, bool has_given_up);
  /// The next change that is due now; unset: there is none. Valid until the next `add`.
  std::optional<DueChange> take_due();
  /// All that has changed since the start; unset: nothing. Valid until the next `add`.
  std::optional<DueChange> since_start() const;
  /// Whether one that is to come states the number of instances.
  bool will_set_target() const;

 private:
  std::span<const Version> to_come() const { return std::span(versions_).subspan(next_); }
  DueChange change_to(const Version& to, const Simulation& from) const;
  void schedule(sim::Time at);
  void forget_past();

  Context& context_;
  std::vector<Version> versions_;
  std::size_t next_ = 0;  // of the versions
};

}  // namespace spillway::cluster
