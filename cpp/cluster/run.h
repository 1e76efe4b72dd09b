#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cluster/config.h"
#include "cluster/output.h"
#include "instance/step_loop/step_log.h"
#include "workload/requests.h"

namespace spillway::cluster {

/// Options of a run, which do not affect its result.
struct RunOptions {
  /// The offered requests if they exist already (see `offered_requests`), otherwise null.
  std::shared_ptr<const workload::Requests> requests;
  bool is_checked = false;  ///< whether the settings are known to be valid
  bool reference = false;   ///< without shortcuts; see instance::Stepping
  /// Where the engines log their steps, each in its own; null: nowhere. Requires `reference`.
  std::vector<instance::StepLog>* step_logs = nullptr;
  bool keep_requests = true;  ///< whether the output has a record
  bool is_observed = false;   ///< whether the state will be looked at during the run
  /// Whether another request from outside is always expected, until the run is closed.
  bool is_open = false;
  /// Whether instances may fail from outside, also where the simulation states no fault.
  bool may_fail = false;
  /// Called now and then, also while requests are generated; once it returns true, the run throws
  /// Interrupted.
  std::function<bool()> interrupted;
};

/// Runs one experiment under one seed. The result is a function of simulation and seed alone.
/// Throws ConfigError for invalid settings or a trace without requests, and NestingError if too
/// many runs contain it.
Output run(const Simulation& simulation, std::uint64_t seed, const RunOptions& options = {});

}  // namespace spillway::cluster
