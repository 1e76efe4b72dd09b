#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cluster/config.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"
#include "workload/request_table.h"
#include "workload/requests.h"

namespace spillway::cluster {

/// The stamps of requests with two legs, by request.
struct LegColumns {
  std::vector<std::int32_t> prefill_instance;  ///< −1: the request is not such
  std::vector<sim::Time> prefill_end;
  std::vector<sim::Time> transfer_begin;
  std::vector<sim::Time> transfer_end;
  std::vector<sim::Time> decode_scheduled;  ///< got its seat at the second instance
  std::vector<std::int64_t> wasted_tokens;  ///< of all attempts

  std::size_t size() const { return prefill_instance.size(); }
  void resize(std::size_t size);
  /// A new attempt begins.
  void clear(sim::RequestId id);
};

/// The requests of a run and their states. `offered` of them arrived before its end.
struct RequestRecord {
  template <class... Arguments>
  explicit RequestRecord(metrics::Accounting taken, Arguments&&... arguments)
      : requests(std::forward<Arguments>(arguments)...), accounting(taken) {}

  workload::RequestTable requests;
  workload::RequestStates states;
  metrics::Accounting accounting;
  std::size_t offered = 0;
  std::unique_ptr<LegColumns> legs;  ///< null unless requests have legs and are kept
};

/// Throws ConfigError for a trace without requests, and, unless more requests may be submitted
/// (`is_open`), for a simulation without any.
void check_has_requests(const Simulation& simulation, bool is_open = false);

/// The requests that `simulation` offers under `seed`: the trace's after its transforms, or
/// generated ones; null if they arise during the run, in streaming mode or in a closed loop.
/// `interrupted`: as in RunOptions. Precondition: the settings are valid, and `check_has_requests`.
std::shared_ptr<const workload::Requests> offered_requests(
    const Simulation& simulation, std::uint64_t seed,
    const std::function<bool()>& interrupted = {});

/// The record of a run, with the columns of the simulation but no rows yet. `offered`: the result
/// of `offered_requests`, or null. Its tenants and classes include those of submitted requests.
std::shared_ptr<RequestRecord> make_record(const Simulation& simulation, std::uint64_t seed,
                                           std::shared_ptr<const workload::Requests> offered);

}  // namespace spillway::cluster
