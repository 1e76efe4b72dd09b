#pragma once

#include <memory>
#include <span>
#include <vector>

#include "instance/instance.h"
#include "signals/exact_estimator.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// Predicts first tokens with the instances themselves: a copy of one's state, with the requests
/// that are on their way to it, runs ahead until the first token has come. It costs about as much
/// as those steps.
class ExactEstimator final : public signals::ExactEstimator {
 public:
  explicit ExactEstimator(std::span<const std::unique_ptr<instance::Instance>> fleet);

  /// The request was routed there and will enter the engine's queue at `entry`.
  void sent(sim::RequestId id, sim::InstanceId instance, sim::Time entry);
  sim::Time first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) override;

 private:
  std::span<const std::unique_ptr<instance::Instance>> fleet_;
  std::vector<std::vector<instance::Entry>> in_transit_;  // by instance, in order of routing
  std::vector<instance::Entry> entries_;                  // kept for its memory
};

}  // namespace spillway::cluster
