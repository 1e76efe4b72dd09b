#include "gateway/fairness/deficit_round_robin.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gateway/fairness/fairness.h"
#include "gateway/fairness/flow_ring.h"

namespace spillway::gateway {

namespace {

class CorrectedPolicy final : public FairnessPolicy {
 public:
  CorrectedPolicy(const DeficitRoundRobin& config, std::span<const double> weights)
      : pays_first_(config.cost.charge_at == ChargeAt::dispatch),
        ring_(weights.size()),
        cursor_(weights.size() - 1) {
    for (const double weight : weights) flows_.push_back({.credit = config.quantum * weight});
  }

  void change(const Fairness& to, std::span<const double> weights) override {
    const double quantum = std::get<DeficitRoundRobin>(to).quantum;
    for (std::size_t i = 0; i < flows_.size(); ++i) flows_[i].credit = quantum * weights[i];
  }

  void joined(sim::TenantId id, const TenantQueues& queues, sim::Time) override {
    if (queues.length(id) > 1) return;
    Flow& flow = flows_[id.index()];
    flow.deficit = std::min(flow.deficit, 0.0);  // a refund while idle gives no credit
    ring_.insert(id);
  }

  void left(sim::TenantId id, const TenantQueues& queues, sim::Time) override {
    if (queues.length(id) == 0) emptied(id, 0);
  }

  std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                    sim::Time) override {
    if (!may_start.any()) return std::nullopt;
    if (is_visiting_ && is_affordable(cursor_, queues) && may_start(cursor_)) {
      return offer(cursor_, queues);
    }
    if (std::ranges::none_of(queues.backlogged(),
                             [&](sim::TenantId flow) { return may_start(flow); })) {
      return std::nullopt;
    }
    if (is_visiting_) {
      flows_[cursor_.index()].is_interrupted = is_affordable(cursor_, queues);
      is_visiting_ = false;
    }
    while (true) {
      double rounds = std::numeric_limits<double>::infinity();  // until a flow can pay
      for (std::size_t i = ring_.size(); i > 0; --i) {
        cursor_ = ring_.after(cursor_);
        if (queues.length(cursor_) == 0) {
          repay(cursor_, 1);
        } else if (may_start(cursor_)) {
          Flow& flow = flows_[cursor_.index()];
          if (!flow.is_interrupted) flow.deficit += flow.credit;
          flow.is_interrupted = false;
          if (is_affordable(cursor_, queues)) {
            is_visiting_ = true;
            return offer(cursor_, queues);
          }
          rounds = std::min(rounds, rounds_needed(cursor_, queues));
        }
      }
      // Rounds without service change only the credit.
      if (rounds > 1) add_rounds(rounds - 1, queues, may_start);
    }
  }

  void dispatched(sim::TenantId id, const TenantQueues& queues, sim::Time) override {
    if (queues.length(id) == 0) emptied(id, offered_cost_);
  }

  void charge(sim::TenantId id, double amount, sim::Time) override {
    Flow& flow = flows_[id.index()];
    flow.deficit -= amount;
    if (flow.deficit < 0) ring_.insert(id);
  }

 private:
  struct Flow {
    double credit;  // per visit
    double deficit = 0;
    bool is_interrupted = false;  // a limit ended its visit: the visit continues without new credit
  };

  bool is_affordable(sim::TenantId id, const TenantQueues& queues) const {
    const double deficit = flows_[id.index()].deficit;
    return pays_first_ ? queues.head(id).cost <= deficit : deficit > 0;
  }
  double rounds_needed(sim::TenantId id, const TenantQueues& queues) const {
    const Flow& flow = flows_[id.index()];
    return pays_first_ ? std::ceil((queues.head(id).cost - flow.deficit) / flow.credit)
                       : std::floor(-flow.deficit / flow.credit) + 1;
  }

  sim::TenantId offer(sim::TenantId id, const TenantQueues& queues) {
    offered_cost_ = queues.head(id).cost;
    return id;
  }

  // Credit beyond the pending charge (`owed`) is lost.
  void emptied(sim::TenantId id, double owed) {
    Flow& flow = flows_[id.index()];
    flow.deficit = std::min(flow.deficit, owed);
    flow.is_interrupted = false;
    if (id == cursor_) is_visiting_ = false;
    if (flow.deficit >= 0) ring_.erase(id);
  }

  // A flow in debt stays in the ring while it is empty, and earns credit up to its debt.
  void repay(sim::TenantId id, double rounds) {
    Flow& flow = flows_[id.index()];
    flow.deficit = std::min(flow.deficit + rounds * flow.credit, 0.0);
    if (flow.deficit == 0) ring_.erase(id);
  }

  void add_rounds(double rounds, const TenantQueues& queues, const MayStart& may_start) {
    sim::TenantId id = cursor_;
    for (std::size_t i = ring_.size(); i > 0; --i) {
      id = ring_.after(id);
      if (queues.length(id) == 0) {
        repay(id, rounds);
      } else if (may_start(id)) {
        flows_[id.index()].deficit += rounds * flows_[id.index()].credit;
      }
    }
  }

  bool pays_first_;
  std::vector<Flow> flows_;
  FlowRing ring_;  // flows that are backlogged or in debt
  sim::TenantId cursor_;
  bool is_visiting_ = false;  // implies that the flow at the cursor is backlogged
  double offered_cost_ = 0;   // of the head that `next` returned last
};

class VerbatimPolicy final : public FairnessPolicy {
 public:
  VerbatimPolicy(const DeficitRoundRobin& config, std::span<const double> weights)
      : deficit_(weights.size()), ring_(weights.size()), visited_(weights.size() - 1) {
    set_credit(config.quantum, weights);
  }

  void change(const Fairness& to, std::span<const double> weights) override {
    set_credit(std::get<DeficitRoundRobin>(to).quantum, weights);
  }

  void joined(sim::TenantId flow, const TenantQueues&, sim::Time) override { ring_.insert(flow); }

  std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                    sim::Time) override {
    while (true) {
      if (is_committed_) {
        if (!may_start.any()) return std::nullopt;
        if (queues.length(visited_) > 0) {
          return may_start(visited_) ? std::optional(visited_) : std::nullopt;
        }
        forfeit();  // its requests expired while it waited for the permit
        is_committed_ = false;
      }
      if (queues.size() == 0) return std::nullopt;
      visited_ = ring_.after(visited_);
      if (queues.length(visited_) == 0) {
        forfeit();
      } else {
        deficit_[visited_.index()] += credit_[visited_.index()];
        is_committed_ = true;
      }
    }
  }

  void dispatched(sim::TenantId flow, const TenantQueues& queues, sim::Time) override {
    deficit_[flow.index()] -= 1;
    is_committed_ = deficit_[flow.index()] > 0 && queues.length(flow) > 0;
  }

  bool drains_when_empty() const override { return true; }

 private:
  void set_credit(double quantum, std::span<const double> weights) {
    credit_.clear();
    for (const double weight : weights) {
      credit_.push_back(std::max(1.0, std::floor(quantum * weight)));
    }
  }
  void forfeit() {
    deficit_[visited_.index()] = 0;
    ring_.erase(visited_);
  }

  std::vector<double> credit_;
  std::vector<double> deficit_;
  FlowRing ring_;  // at least the flows that are backlogged or have credit
  sim::TenantId visited_;
  bool is_committed_ = false;  // to serving the visited flow with the next permit
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const DeficitRoundRobin& config,
                                     std::span<const double> weights) {
  if (config.semantics == DrrSemantics::verbatim) {
    return std::make_unique<VerbatimPolicy>(config, weights);
  }
  return std::make_unique<CorrectedPolicy>(config, weights);
}

}  // namespace spillway::gateway
