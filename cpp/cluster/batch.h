#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cluster/config.h"
#include "cluster/run.h"
#include "sim/time.h"
#include "sim/value.h"

namespace spillway::cluster {

class Session;

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

/// A change of a session's settings at an instant after now (empty: none), and the instant up to
/// which the session is advanced then.
struct SessionStep {
  Session* session;
  sim::Value::Map set;
  sim::Time set_at;
  sim::Time until;
};

/// Does the steps of different sessions on several threads, of which the calling one is the first.
/// Where `Session::set` returns false, the step is left out. Throws the exception of the first
/// session that fails; others may not have advanced then. `interrupted`: as in BatchOptions; it
/// throws Interrupted then. The sessions of other threads end if their own `interrupted` asks
/// `is_stopped`.
void advance_all(std::span<const SessionStep> steps, std::size_t threads,
                 const std::function<bool()>& interrupted = {});

/// Whether this thread works for an `advance_all` that was interrupted.
bool is_stopped();

}  // namespace spillway::cluster
