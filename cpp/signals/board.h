#pragma once

#include <span>
#include <vector>

#include "signals/transports.h"
#include "signals/view.h"
#include "sim/time.h"

namespace spillway::signals {

/// Where decisions read the fleet's signals: straight from the instances, or as last reported.
class Board {
 public:
  Board(const Signals& transport, std::vector<Probe*> probes);

  /// What a decision at `now` sees. Every decision asks for its view, whether or not it looks at a
  /// signal: `on_read` renews what is due. `in_flight` must outlive the view.
  View view(std::span<const std::int32_t> in_flight, sim::Time now);

 private:
  std::vector<Probe*> probes_;
  sim::Time period_{0};
  std::vector<InstanceSignal> readings_;  // empty: live
};

}  // namespace spillway::signals
