#include "gateway/fairness/least_attained_service.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "gateway/fairness/fairness.h"
#include "gateway/fairness/least.h"
#include "sim/math.h"

namespace spillway::gateway {

namespace {

// Position of a value between the minimum and the maximum.
class Span {
 public:
  void add(double value) {
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  double place(double value) const { return high_ > low_ ? (value - low_) / (high_ - low_) : 0.5; }

 private:
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

class LeastAttainedServicePolicy final : public FairnessPolicy {
 public:
  LeastAttainedServicePolicy(const LeastAttainedService& config, std::size_t num_flows)
      : service_weight_(config.service_weight),
        head_wait_weight_(config.head_wait_weight),
        half_life_s_(config.half_life_s),
        always_decays_(config.decay == ServiceDecay::always),
        shares_(config.scope == ServiceScope::gateway),
        flows_(std::make_shared<std::vector<Flow>>(num_flows)) {}

  void joined(sim::TenantId id, const TenantQueues& queues, sim::Time now) override {
    if (queues.length(id) == 1 || always_decays_) forget((*flows_)[id.index()], now);
  }

  std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                    sim::Time now) override {
    if (!may_start.any()) return std::nullopt;
    const auto attained = [&](sim::TenantId flow) { return (*flows_)[flow.index()].attained; };
    const auto wait_s = [&](sim::TenantId flow) {
      return sim::to_seconds(now - queues.head(flow).entered);
    };
    Span services;
    Span waits;
    for (const sim::TenantId flow : queues.backlogged()) {
      if (always_decays_) forget((*flows_)[flow.index()], now);
      services.add(attained(flow));
      waits.add(wait_s(flow));
    }
    return least(queues, may_start, [&](sim::TenantId flow) {
      return -(service_weight_ * (1 - services.place(attained(flow))) +
               head_wait_weight_ * waits.place(wait_s(flow)));
    });
  }

  // A request in flight ends with a charge: unless it always decays, service does not until then.
  void charge(sim::TenantId id, double amount, sim::Time now) override {
    Flow& flow = (*flows_)[id.index()];
    if (always_decays_) forget(flow, now);
    flow.attained += amount;
    flow.forgets_since = now;
  }

  bool decays_with_time() const override { return true; }

  void share_service(FairnessPolicy& other) override {
    const auto* policy = dynamic_cast<const LeastAttainedServicePolicy*>(&other);
    if (!policy || !shares_ || !policy->shares_) return;
    flows_ = policy->flows_;
    half_life_s_ = policy->half_life_s_;
    always_decays_ = policy->always_decays_;
  }

  void change(const Fairness& to, std::span<const double>) override {
    service_weight_ = std::get<LeastAttainedService>(to).service_weight;
    head_wait_weight_ = std::get<LeastAttainedService>(to).head_wait_weight;
  }

 private:
  struct Flow {
    double attained = 0;
    sim::Time forgets_since{0};
  };

  void forget(Flow& flow, sim::Time now) const {
    flow.attained *= sim::exp2(-sim::to_seconds(now - flow.forgets_since) / half_life_s_);
    flow.forgets_since = now;
  }

  double service_weight_;
  double head_wait_weight_;
  double half_life_s_;
  bool always_decays_;
  bool shares_;
  std::shared_ptr<std::vector<Flow>> flows_;  // shared with other bands
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const LeastAttainedService& config,
                                     std::span<const double> weights) {
  return std::make_unique<LeastAttainedServicePolicy>(config, weights.size());
}

}  // namespace spillway::gateway
