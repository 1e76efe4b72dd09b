#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cluster/config.h"
#include "sim/error.h"
#include "sim/time.h"
#include "sim/value.h"

namespace spillway::cluster {

/// The settings in force from an instant on.
struct Version {
  sim::Time from;
  sim::Value::Map set;    ///< what the change states
  Simulation simulation;  ///< without changes
  /// The number of instances if the change states it: an autoscaler may have changed it since.
  std::optional<std::int64_t> target_instances;
};

/// The versions that a simulation takes after its start by its changes, in order of time. Reports
/// every change that is impossible: an unknown path, a setting that cannot change during a run, an
/// invalid value.
std::vector<Version> later_versions(const Simulation& simulation, std::vector<sim::Violation>& out);
/// Precondition: `simulation` is valid.
std::vector<Version> later_versions(const Simulation& simulation);

/// The version of one more change, and those that follow it, derived again. It comes after those of
/// the same instant and before. Throws ConfigError if one of them is impossible.
std::vector<Version> versions_from(const Simulation& simulation, std::span<const Version> later,
                                   sim::Time from, const sim::Value::Map& set);

}  // namespace spillway::cluster
