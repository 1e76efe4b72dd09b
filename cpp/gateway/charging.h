#pragma once

#include <cstdint>
#include <vector>

#include "gateway/fairness/cost.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "workload/request_table.h"

namespace spillway::gateway {

/// Evaluates a `Cost`: the charges of a request at each stage of its life, in the cost's unit.
class Charging final {
 public:
  Charging(const Cost& cost, const workload::RequestTable& requests);

  /// Estimates the cost of the request. The functions below use the estimate.
  void estimate(const signals::RequestView& request, const signals::View& view);

  double at_enqueue(sim::RequestId id) const { return due(ChargeAt::enqueue, id); }
  double at_dispatch(sim::RequestId id) const;
  double at_first_token(sim::RequestId id) const { return due(ChargeAt::first_token, id); }
  double per_token() const {
    return cost_.unit == CostUnit::weighted_tokens ? cost_.output_weight : 0;
  }
  /// Whether `at_end` ever charges, or learns from a completed request.
  bool follows_ends() const {
    return cost_.settles || cost_.charge_at == ChargeAt::completion ||
           cost_.output_estimate == OutputEstimate::mean;
  }
  /// The charge when the request leaves the instance, completed or refused.
  double at_end(sim::RequestId id, bool is_completed);
  /// The refund for a request that leaves its queue without being dispatched.
  double refund(sim::RequestId id) const { return -at_enqueue(id); }

  bool charges_tokens() const { return cost_.charge_at == ChargeAt::token; }

 private:
  struct Estimate {
    double prompt = 0;  ///< the known part
    double output = 0;
  };
  struct Outputs {
    double sum = 0;
    double count = 0;
  };

  double due(ChargeAt moment, sim::RequestId id) const {
    if (cost_.charge_at != moment) return 0;
    const Estimate estimate = estimate_of(id);
    return estimate.prompt + estimate.output;
  }
  Estimate estimate_of(sim::RequestId id) const {
    return keeps_estimates_ ? estimates_[id.index()] : estimated(id);
  }
  Estimate estimated(sim::RequestId id) const;
  double uncached_tokens(const signals::RequestView& request, const signals::View& view) const;
  double output_tokens_expected(sim::RequestId id) const;

  Cost cost_;
  const workload::RequestTable& requests_;
  bool keeps_estimates_;             // whether they depend on when they are made
  std::vector<Estimate> estimates_;  // by request; otherwise empty
  std::vector<Outputs> outputs_;     // outputs of completed requests, by tenant
};

}  // namespace spillway::gateway
