#pragma once

#include <vector>

#include "signals/transports.h"
#include "signals/view.h"
#include "sim/time.h"

namespace spillway::signals {

/// Where decisions read the fleet's signals: straight from the instances, or as last reported.
class Board {
 public:
  /// `scrapes`: those that the instances take part in, or null.
  Board(const Signals& transport, std::vector<Probe*> probes, Scrapes* scrapes);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// What a decision at `now` sees. Every decision asks for its view, whether or not it looks at a
  /// signal: `on_read` renews what is due. What `own` refers to must outlive the view.
  View view(const OwnRecord& own, sim::Time now) {
    if (!readings_.empty()) renew(now);
    return {sources_, own, now};
  }

 private:
  void renew(sim::Time now);

  std::vector<Probe*> probes_;
  sim::Time period_{0};
  std::vector<InstanceSignal> readings_;  // only with on_read
  Sources sources_;
};

}  // namespace spillway::signals
