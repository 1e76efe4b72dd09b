#include "gateway/fairness/tenant_round_robin.h"

#include "gateway/fairness/fairness.h"
#include "gateway/fairness/flow_ring.h"

namespace spillway::gateway {

namespace {

class TenantRoundRobinPolicy final : public FairnessPolicy {
 public:
  explicit TenantRoundRobinPolicy(std::size_t num_flows)
      : backlogged_(num_flows), last_(num_flows - 1), last_served_(last_) {}

  void joined(sim::TenantId flow, const TenantQueues&, sim::Time) override {
    backlogged_.insert(flow);
  }
  void left(sim::TenantId flow, const TenantQueues& queues, sim::Time) override {
    if (queues.length(flow) == 0) backlogged_.erase(flow);
  }

  std::optional<sim::TenantId> next(const TenantQueues&, const MayStart& may_start,
                                    sim::Time) override {
    if (!may_start.any()) return std::nullopt;
    sim::TenantId flow = last_served_;
    for (std::size_t i = 0; i < backlogged_.size(); ++i) {
      flow = backlogged_.after(flow);
      if (may_start(flow)) return flow;
    }
    return std::nullopt;
  }

  void dispatched(sim::TenantId flow, const TenantQueues& queues, sim::Time now) override {
    last_served_ = flow;
    left(flow, queues, now);
  }
  void found_empty() override { last_served_ = last_; }

 private:
  FlowRing backlogged_;
  sim::TenantId last_;
  sim::TenantId last_served_;
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const TenantRoundRobin&, std::span<const double> weights) {
  return std::make_unique<TenantRoundRobinPolicy>(weights.size());
}

}  // namespace spillway::gateway
