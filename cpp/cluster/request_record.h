#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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
  std::vector<sim::Time> transfer_begin;    ///< unset also if the prompt is there already
  std::vector<sim::Time> transfer_end;      ///< the second instance has the prompt
  std::vector<sim::Time> decode_scheduled;  ///< got its seat at the second instance
  std::vector<std::int64_t> wasted_tokens;  ///< of all attempts
  std::vector<std::int32_t> prefill_retries;

  std::size_t size() const { return prefill_instance.size(); }
  void resize(std::size_t size);
  /// A new attempt begins.
  void clear(sim::RequestId id);
};

/// The time of an attempt at one of several instances.
struct Stay {
  sim::RequestId id;
  std::int32_t instance = 0;
  std::int16_t rank = 0;
  sim::Time enqueued = sim::kUnset;  ///< unset: it never entered
  sim::Time left = sim::kUnset;      ///< with the instance, or completed
  std::int64_t lost_tokens = 0;      ///< the most in KV memory that it lost with the instance
  // With pools, as in LegColumns:
  std::int32_t prefill_instance = -1;
  sim::Time prefill_end = sim::kUnset;
  sim::Time transfer_begin = sim::kUnset;
  sim::Time transfer_end = sim::kUnset;
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
  /// Of attempts that went on at other instances, in order of leaving; empty unless requests are
  /// kept.
  std::vector<Stay> stays;
};

std::vector<std::string> tenant_names(const workload::RequestTable& requests);

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
