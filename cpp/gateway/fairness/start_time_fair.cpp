#include "gateway/fairness/start_time_fair.h"

#include <algorithm>
#include <vector>

#include "gateway/fairness/fairness.h"
#include "gateway/fairness/least.h"

namespace spillway::gateway {

namespace {

class StartTimeFairPolicy final : public FairnessPolicy {
 public:
  explicit StartTimeFairPolicy(std::span<const double> weights)
      : weights_(weights.begin(), weights.end()), start_(weights.size()) {}

  void joined(sim::TenantId flow, const TenantQueues& queues, sim::Time) override {
    // The paper's busy period ends only when nothing is in service either, which is not known here.
    if (queues.size() == 1) clock_ = std::max(clock_, last_finish_);
    double& start = start_[flow.index()];
    if (queues.length(flow) == 1) start = std::max(start, clock_);
  }

  std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                    sim::Time) override {
    return least(queues, may_start, [&](sim::TenantId flow) { return start_[flow.index()]; });
  }

  void dispatched(sim::TenantId flow, const TenantQueues&, sim::Time) override {
    clock_ = std::max(clock_, start_[flow.index()]);
  }

  void charge(sim::TenantId flow, double amount, sim::Time) override {
    double& start = start_[flow.index()];
    start += amount / weights_[flow.index()];
    last_finish_ = std::max(last_finish_, start);
  }

  void change(const Fairness&, std::span<const double> weights) override {
    weights_.assign(weights.begin(), weights.end());
  }

 private:
  std::vector<double> weights_;
  std::vector<double> start_;  // of each flow's head: the finish tag of its previous request
  double clock_ = 0;
  double last_finish_ = 0;
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const StartTimeFair&, std::span<const double> weights) {
  return std::make_unique<StartTimeFairPolicy>(weights);
}

}  // namespace spillway::gateway
