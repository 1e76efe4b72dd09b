#pragma once

#include <span>
#include <vector>

#include "signals/load_changes.h"
#include "signals/transports.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::signals {

/// The fleet's signals as decisions read them: directly from the instances, or as last reported.
class SignalStore {
 public:
  /// `scrapes`, `load_changes`: those of the instances, or null.
  SignalStore(const Signals& transport, std::vector<SignalSource*> instances, Scrapes* scrapes,
              const LoadChanges* load_changes);
  SignalStore(const SignalStore&) = delete;
  SignalStore& operator=(const SignalStore&) = delete;

  /// Constant from then on.
  void set_exact_estimator(ExactEstimator* estimator) { sources_.exact_estimator = estimator; }
  /// See Sources. `ready` must be valid until the next call.
  void set_ready(std::span<const sim::InstanceId> ready, bool has_workers) {
    sources_.ready = ready;
    sources_.has_workers = has_workers;
  }
  /// See Sources. The pools must be valid until the next call.
  void set_pools(std::span<const sim::InstanceId> prefill, std::span<const sim::InstanceId> decode,
                 std::span<const sim::InstanceId> entry) {
    sources_.prefill_pool = prefill;
    sources_.decode_pool = decode;
    sources_.entry_pool = entry;
  }

  /// The view of a decision at `now`. Every decision must obtain its view, even if it reads no
  /// signal, because `on_read` renews readings here. `local` and its targets must outlive the view.
  View view(const LocalState& local, sim::Time now) {
    if (!readings_.empty()) renew(now);
    return {sources_, local, now};
  }
  View view(LocalState&& local, sim::Time now) = delete;
  /// What a decision at `now` would see of an instance, without being one.
  InstanceSignal seen(sim::InstanceId id, sim::Time now);

 private:
  void renew(sim::Time now);

  std::vector<SignalSource*> instances_;
  sim::Time period_{0};
  std::vector<InstanceSignal> readings_;  // only with on_read
  Sources sources_;
};

}  // namespace spillway::signals
