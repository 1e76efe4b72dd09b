#pragma once

#include <memory>
#include <span>
#include <vector>

#include "instance/instance.h"
#include "signals/exact_estimator.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// Predicts first tokens with the instances themselves: a copy of an instance's state, with the
/// requests in transit to it, runs ahead to the first token, at about the cost of those steps.
class ExactEstimator final : public signals::ExactEstimator {
 public:
  explicit ExactEstimator(std::span<const std::unique_ptr<instance::Instance>> fleet);

  /// The request was routed to `instance` and will enter the engine's queue at `entry`.
  void sent(sim::RequestId id, sim::InstanceId instance, sim::Time entry);
  sim::Time first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) override;

 private:
  std::span<const std::unique_ptr<instance::Instance>> fleet_;
  std::vector<std::vector<instance::Entry>> in_transit_;  // by instance, in order of routing
  std::vector<instance::Entry> entries_;                  // kept to reuse its memory
};

}  // namespace spillway::cluster
