#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/config.h"
#include "cluster/output.h"
#include "sim/value.h"
#include "workload/requests.h"

namespace spillway::cluster {

/// Options of a run, which do not affect its result.
struct RunOptions {
  /// The offered requests if they exist already (see `offered_requests`), otherwise null.
  std::shared_ptr<const workload::Requests> requests;
  bool is_checked = false;    ///< whether the settings are known to be valid
  bool reference = false;     ///< without shortcuts; see instance::Stepping
  bool keep_requests = true;  ///< whether the output has a record
  bool is_observed = false;   ///< whether the state will be looked at during the run
  /// Called now and then, also while requests are generated; once it returns true, the run throws
  /// Interrupted.
  std::function<bool()> interrupted;
};

/// Runs one experiment under one seed. The result is a function of simulation and seed alone.
/// Throws ConfigError for invalid settings or a trace without requests.
Output run(const Simulation& simulation, std::uint64_t seed, const RunOptions& options = {});

class Run;

/// A run that can be held between two instants, looked at, and continued. Handled in whatever
/// pieces, it has the result of `run`. Not for use by several threads at once.
class Session {
 public:
  Session(Simulation simulation, std::uint64_t seed, RunOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Handles all events up to an instant, that of the horizon at most.
  void advance(sim::Time until);
  /// The instant up to which events have been handled.
  sim::Time now() const;
  /// Whether requests are to come, or have not ended.
  bool has_pending_work() const;
  /// Names of the tenants, those of the workload included.
  std::vector<std::string> tenants() const;
  /// State of gateway and fleet now, as one sample.
  metrics::Timeline observe();
  /// Changes settings at an instant after now. Throws ConfigError. False: this takes a session of a
  /// simulation with that change, advanced to now.
  bool set(const sim::Value::Map& values, sim::Time at);
  /// Handles the remaining events and returns the result. The session is over then.
  Output finish();

 private:
  Simulation simulation_;
  std::unique_ptr<Run> run_;
  sim::Time now_{0};
};

}  // namespace spillway::cluster
