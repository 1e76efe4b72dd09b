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

  /// The view of a decision at `now`. Every decision must obtain its view, even if it reads no
  /// signal, because `on_read` renews readings here. The targets of `local` must outlive the view.
  /// `ready`: see View.
  View view(const LocalState& local, sim::Time now, std::span<const sim::InstanceId> ready) {
    if (!readings_.empty()) renew(now);
    return {sources_, local, now, ready};
  }

 private:
  void renew(sim::Time now);

  std::vector<SignalSource*> instances_;
  sim::Time period_{0};
  std::vector<InstanceSignal> readings_;  // only with on_read
  Sources sources_;
};

}  // namespace spillway::signals
