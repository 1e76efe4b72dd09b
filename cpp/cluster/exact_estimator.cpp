#include "cluster/exact_estimator.h"

#include <algorithm>

#include "sim/error.h"

namespace spillway::cluster {

ExactEstimator::ExactEstimator(std::span<const std::unique_ptr<instance::Instance>> fleet)
    : fleet_(fleet), in_transit_(fleet.size()) {}

void ExactEstimator::sent(sim::RequestId id, sim::InstanceId instance, sim::Time entry) {
  in_transit_[instance.index()].push_back({id, entry});
}

sim::Time ExactEstimator::first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) {
  std::vector<instance::Entry>& underway = in_transit_[instance.index()];
  // Requests of this instant have not entered yet.
  std::erase_if(underway, [&](const instance::Entry& entry) { return entry.at < now; });
  entries_ = underway;
  const instance::Instance& there = *fleet_[instance.index()];
  entries_.push_back({id, now + there.entry_delay(id)});
  const instance::Forecaster* forecaster = there.forecaster();
  sim::require(forecaster != nullptr, "the instance does not support exact estimates");
  return forecaster->predict_first_token(entries_, now);
}

}  // namespace spillway::cluster
