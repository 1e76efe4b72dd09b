#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cluster/config.h"
#include "metrics/ledger.h"
#include "metrics/summary.h"
#include "sim/value.h"

namespace spillway::cluster {

/// What one instance did.
struct InstanceReport {
  std::int64_t completed = 0;
  std::int64_t refused = 0;
  std::int64_t preemptions = 0;
  std::int64_t steps = 0;
  double mean_waiting = 0;  ///< time average of the engine's queue over the fleet's duration
  double mean_waiting_at_step =
      0;  ///< the same averaged over steps, each sampled once it has begun
};

/// One row per offered request, in order of arrival; times in seconds, NaN where not applicable.
struct Columns {
  std::vector<std::uint8_t> outcome;     ///< index into workload::kOutcomeNames
  std::vector<std::uint8_t> reason;      ///< index into Output::reasons
  std::vector<std::uint16_t> tenant;     ///< index into Output::tenants
  std::vector<std::uint16_t> slo_class;  ///< index into Output::slo_classes
  std::vector<std::uint8_t> admitted;    ///< 1: by the gateway
  std::vector<std::int32_t> instance;    ///< −1: never routed
  std::vector<std::int32_t> input_tokens;
  std::vector<std::int32_t> output_tokens;  ///< delivered so far
  std::vector<std::int32_t> preemptions;
  std::vector<double> arrival_s, ttft_s, e2e_s, tpot_s, queue_s, scheduling_delay_s, itl_mean_s;
};

/// Everything that a run leaves behind.
struct Output {
  std::shared_ptr<const workload::Requests> requests;
  Columns columns;
  std::vector<std::string> reasons;  ///< position 0 is "none", written as nothing
  std::vector<std::string> tenants;
  std::vector<std::string> slo_classes;
  metrics::Ledger ledger;
  metrics::Summary summary;
  std::vector<InstanceReport> instances;
  std::int64_t steps = 0;
  std::int64_t events = 0;
  double end_s = 0;  ///< instant of the last event
};

/// The requests that `simulation` offers under `seed`: the trace's own, or generated ones.
/// Throws ConfigError if a trace has no requests.
std::shared_ptr<const workload::Requests> offered_requests(const Simulation& simulation,
                                                           std::uint64_t seed);

/// Runs one experiment under one seed. The result is a function of the arguments alone.
/// `interrupted` is asked now and then; once it says yes the run ends by throwing Interrupted.
/// Throws ConfigError for settings that do not fit.
Output run(const Simulation& simulation, std::uint64_t seed,
           const std::function<bool()>& interrupted = {});

}  // namespace spillway::cluster
