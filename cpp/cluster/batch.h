#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cluster/config.h"
#include "cluster/run.h"

namespace spillway::cluster {

struct BatchOptions {
  std::size_t threads = 1;
  bool reference = false;      ///< as in RunOptions
  bool keep_requests = false;  ///< likewise
  /// Asked about ten times a second in the calling thread; once it says yes the batch ends.
  std::function<bool()> interrupted;
  /// Told in the calling thread how many runs are over, now and then and at the end.
  std::function<void(std::size_t)> progress;
};

/// Runs every simulation under every seed, on several threads. The outputs stand simulation by
/// simulation, each in the order of the seeds, whatever the number of threads; those of an
/// interrupted batch that were not reached are null. Simulations with the same workload share its
/// requests; a simulation without random streams is run once, and all its seeds share the output.
/// Throws what the first run that fails throws.
std::vector<std::shared_ptr<const Output>> run_batch(std::span<const Simulation> simulations,
                                                     std::span<const std::uint64_t> seeds,
                                                     const BatchOptions& options);

}  // namespace spillway::cluster
