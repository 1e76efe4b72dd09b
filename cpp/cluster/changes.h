#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/config.h"
#include "sim/error.h"
#include "sim/time.h"
#include "sim/value.h"

namespace spillway::cluster {

/// The settings in force from an instant on.
struct Version {
  sim::Time from;
  Simulation simulation;  ///< without changes
};

/// A simulation as it starts, and its later versions.
///
/// Changes of the number of instances and of the thresholds of busy workers become entries of the
/// schedules of the first one; actors look at later versions for other settings only.
struct Versions {
  Simulation first;
  std::vector<Version> later;  ///< in order of time
};

/// The simulation with new values by path. Unset if that is impossible, which is reported: an
/// unknown path, a setting that cannot change during a run, an invalid value.
std::optional<Simulation> changed(const Simulation& from, const sim::Value::Map& set,
                                  std::vector<sim::Violation>& out);
/// Whether some of the values become entries of schedules.
bool is_scheduled(const sim::Value::Map& set);

/// Reports every change that is impossible.
Versions versions_of(const Simulation& simulation, std::vector<sim::Violation>& out);
/// Precondition: `simulation` is valid.
Versions versions_of(const Simulation& simulation);

}  // namespace spillway::cluster
