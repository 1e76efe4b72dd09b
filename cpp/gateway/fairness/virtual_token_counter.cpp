#include "gateway/fairness/virtual_token_counter.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "gateway/fairness/fairness.h"
#include "gateway/fairness/least.h"

namespace spillway::gateway {

namespace {

class VirtualTokenCounterPolicy final : public FairnessPolicy {
 public:
  VirtualTokenCounterPolicy(const VirtualTokenCounter& config, std::span<const double> weights)
      : lift_(config.lift), weights_(weights.begin(), weights.end()), counter_(weights.size()) {}

  void joined(sim::TenantId flow, const TenantQueues& queues, sim::Time) override {
    if (queues.length(flow) > 1) return;
    double& counter = counter_[flow.index()];
    counter = std::max(counter, floor(flow, queues));
  }

  void left(sim::TenantId flow, const TenantQueues&, sim::Time) override { last_departed_ = flow; }

  std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                    sim::Time) override {
    return least(queues, may_start, [&](sim::TenantId flow) { return counter_[flow.index()]; });
  }

  void dispatched(sim::TenantId flow, const TenantQueues&, sim::Time) override {
    last_departed_ = flow;
    last_dispatched_ = flow;
  }

  void charge(sim::TenantId flow, double amount, sim::Time) override {
    counter_[flow.index()] += amount / weights_[flow.index()];
  }

  void change(const Fairness&, std::span<const double> weights) override {
    weights_.assign(weights.begin(), weights.end());
  }

 private:
  double floor(sim::TenantId returning, const TenantQueues& queues) const {
    const bool is_alone = queues.size() == 1;
    switch (lift_) {
      case CounterLift::min_backlogged:
        return is_alone ? counter_[returning.index()] : least_of_others(returning, queues);
      case CounterLift::last_departed:
        return is_alone ? counter_[last_departed_.index()] : least_of_others(returning, queues);
      case CounterLift::max:
        return is_alone ? *std::ranges::max_element(counter_) : counter_[last_dispatched_.index()];
      case CounterLift::none:
        break;
    }
    return counter_[returning.index()];
  }

  double least_of_others(sim::TenantId returning, const TenantQueues& queues) const {
    double smallest = std::numeric_limits<double>::infinity();
    for (const sim::TenantId flow : queues.backlogged()) {
      if (flow != returning) smallest = std::min(smallest, counter_[flow.index()]);
    }
    return smallest;
  }

  CounterLift lift_;
  std::vector<double> weights_;
  std::vector<double> counter_;
  sim::TenantId last_departed_;
  sim::TenantId last_dispatched_;
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const VirtualTokenCounter& config,
                                     std::span<const double> weights) {
  return std::make_unique<VirtualTokenCounterPolicy>(config, weights);
}

}  // namespace spillway::gateway
