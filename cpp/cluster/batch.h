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
  bool is_checked = false;     ///< as in RunOptions
  bool reference = false;      ///< as in RunOptions
  bool keep_requests = false;  ///< as in RunOptions
  /// Called about ten times a second in the calling thread; the batch ends once it returns true.
  std::function<bool()> interrupted;
  /// Called in the calling thread with the number of completed runs, now and then and at the end.
  std::function<void(std::size_t)> progress;
};

/// Runs every simulation under every seed, on several threads. The outputs are ordered by
/// simulation, then by seed, for any number of threads; those that an interrupted batch did not
/// reach are null. Simulations with the same workload share its requests; a simulation without
/// random streams is run once, and all its seeds share the output. Throws the exception of the
/// first run that fails.
std::vector<std::shared_ptr<const Output>> run_batch(std::span<const Simulation> simulations,
                                                     std::span<const std::uint64_t> seeds,
                                                     const BatchOptions& options);

}  // namespace spillway::cluster
