#pragma once

#include <vector>

#include "signals/transports.h"
#include "signals/view.h"
#include "sim/time.h"

namespace spillway::signals {

/// Where decisions read the fleet's signals: straight from the instances, or as last reported.
class SignalStore {
 public:
  /// `scrapes`: those that the instances take part in, or null.
  SignalStore(const Signals& transport, std::vector<SignalSource*> instances, Scrapes* scrapes);
  SignalStore(const SignalStore&) = delete;
  SignalStore& operator=(const SignalStore&) = delete;

  /// What a decision at `now` sees. Every decision asks for its view, whether or not it looks at a
  /// signal: `on_read` renews what is due. What `own` refers to must outlive the view.
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
