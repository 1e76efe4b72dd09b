#pragma once

#include <cstdint>
#include <vector>

#include "gateway/fairness/cost.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "workload/request_table.h"

namespace spillway::gateway {

/// Evaluates a `Cost`: what a request is charged at each moment of its life, in the cost's unit.
class Charging final {
 public:
  Charging(const Cost& cost, const workload::RequestTable& requests);

  /// Estimates what the request costs, which the others then go by.
  void estimate(const signals::RequestView& request, const signals::View& view);

  double at_enqueue(sim::RequestId id) const { return due(ChargeAt::enqueue, id); }
  double at_dispatch(sim::RequestId id) const;
  double at_first_token(sim::RequestId id) const { return due(ChargeAt::first_token, id); }
  double per_token() const {
    return cost_.unit == CostUnit::weighted_tokens ? cost_.output_weight : 0;
  }
  /// What is charged as the request leaves the instance, completed or refused.
  double at_end(sim::RequestId id, bool is_completed);
  /// What a request gets back that leaves its queue undispatched.
  double refund(sim::RequestId id) const { return -at_enqueue(id); }

  bool charges_tokens() const { return cost_.charge_at == ChargeAt::token; }

 private:
  struct Estimate {
    double prompt = 0;  ///< the part that is known
    double output = 0;
  };
  struct Outputs {
    double sum = 0;
    double count = 0;
  };

  double due(ChargeAt moment, sim::RequestId id) const {
    if (cost_.charge_at != moment) return 0;
    return estimates_[id.index()].prompt + estimates_[id.index()].output;
  }
  double prompt_cost(const signals::RequestView& request, const signals::View& view) const;
  double output_tokens_expected(sim::RequestId id) const;

  Cost cost_;
  const workload::RequestTable& requests_;
  std::vector<Estimate> estimates_;  // by request
  std::vector<Outputs> outputs_;     // finished ones, by tenant
};

}  // namespace spillway::gateway
