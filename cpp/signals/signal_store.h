#pragma once

#include <vector>

#include "signals/transports.h"
#include "signals/view.h"
#include "sim/time.h"

namespace spillway::signals {

/// The fleet's signals as decisions read them: directly from the instances, or as last reported.
class SignalStore {
 public:
  /// `scrapes`: those of the instances, or null.
  SignalStore(const Signals& transport, std::vector<SignalSource*> instances, Scrapes* scrapes);
  SignalStore(const SignalStore&) = delete;
  SignalStore& operator=(const SignalStore&) = delete;

  /// The view of a decision at `now`. Every decision must obtain its view, even if it reads no
  /// signal, because `on_read` renews readings here. The targets of `local` must outlive the view.
  View view(const LocalState& local, sim::Time now) {
    if (!readings_.empty()) renew(now);
    return {sources_, local, now};
  }

 private:
  void renew(sim::Time now);

  std::vector<SignalSource*> instances_;
  sim::Time period_{0};
  std::vector<InstanceSignal> readings_;  // only with on_read
  Sources sources_;
};

}  // namespace spillway::signals
