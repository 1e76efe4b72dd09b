#pragma once

#include <string>
#include <vector>

#include "cluster/config.h"
#include "sim/error.h"
#include "sim/time.h"

namespace spillway::cluster {

/// The settings in force from an instant on.
struct Version {
  sim::Time from;
  Simulation simulation;  ///< without changes
};

/// A simulation as it starts, and its later versions.
///
/// Changes of the number of instances and of the thresholds of busy workers are entries of the
/// schedules that these have, and of all versions; a version differs from the one before it in
/// other settings.
struct Versions {
  Simulation first;
  std::vector<Version> later;  ///< in order of time
};

/// Reports every change that is impossible: of an unknown path, of a setting that cannot change
/// during a run, or to an invalid value.
Versions versions_of(const Simulation& simulation, std::vector<sim::Violation>& out);
/// Precondition: `simulation` is valid.
Versions versions_of(const Simulation& simulation);

}  // namespace spillway::cluster
