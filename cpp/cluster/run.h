#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cluster/config.h"
#include "cluster/output.h"
#include "workload/requests.h"

namespace spillway::cluster {

/// How a run is made; what it results in does not depend on it.
struct RunOptions {
  /// The offered requests where they are at hand (see `offered_requests`), else null.
  std::shared_ptr<const workload::Requests> requests;
  bool reference = false;     ///< see instance::Stepping
  bool keep_requests = true;  ///< whether the output has a record
  /// Asked now and then, while requests are generated as well; once it says yes the run ends by
  /// throwing Interrupted.
  std::function<bool()> interrupted;
};

/// Runs one experiment under one seed. The result is a function of simulation and seed alone.
/// Throws what `check_runnable` throws.
Output run(const Simulation& simulation, std::uint64_t seed, const RunOptions& options = {});

}  // namespace spillway::cluster
