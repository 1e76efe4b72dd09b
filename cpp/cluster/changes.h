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

/// The numbers of instances that a change states: an autoscaler may have changed them since.
struct Targets {
  std::optional<std::int64_t> fleet;
  std::optional<std::int64_t> prefill;
  std::optional<std::int64_t> decode;

  bool are_stated() const { return fleet || prefill || decode; }
};

/// The settings in force from an instant on.
struct Version {
  sim::Time from;
  sim::Value::Map set;    ///< what the change states
  Simulation simulation;  ///< without changes
  Targets targets;
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
