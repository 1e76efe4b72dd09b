#pragma once

#include <memory>
#include <span>
#include <vector>

#include "signals/transports.h"
#include "signals/view.h"
#include "sim/time.h"

namespace spillway::signals {

/// Where decisions read the fleet's signals: straight from the instances, or as last reported.
class Board {
 public:
  /// `scrapes`: those that the instances take part in, or null; `index`: the gateway's record of
  /// what it sent where, or null.
  Board(const Signals& transport, std::vector<Probe*> probes, Scrapes* scrapes,
        std::unique_ptr<PrefixIndex> index);

  /// What a decision at `now` sees. Every decision asks for its view, whether or not it looks at a
  /// signal: `on_read` renews what is due. `in_flight` must outlive the view.
  View view(std::span<const std::int32_t> in_flight, sim::Time now);
  /// The request goes to the instance.
  void sent(sim::RequestId id, sim::InstanceId instance) {
    if (index_) index_->sent(id, instance.index());
  }

 private:
  std::vector<Probe*> probes_;
  Scrapes* scrapes_;
  std::unique_ptr<PrefixIndex> index_;
  sim::Time period_{0};
  std::vector<InstanceSignal> readings_;  // only with on_read
};

}  // namespace spillway::signals
