#include "gateway/charging.h"

#include <algorithm>

namespace spillway::gateway {

Charging::Charging(const Cost& cost, const workload::RequestTable& requests)
    : cost_(cost),
      requests_(requests),
      keeps_estimates_(cost.unit == CostUnit::uncached_tokens ||
                       cost.output_estimate == OutputEstimate::mean),
      outputs_(requests.tenants.size()) {}

void Charging::estimate(const signals::RequestView& request, const signals::View& view) {
  if (!keeps_estimates_) return;
  const std::size_t row = request.id().index();
  if (estimates_.size() <= row) estimates_.resize(std::max(row + 1, 2 * estimates_.size()));
  estimates_[row] = estimated(request.id());
  if (cost_.unit == CostUnit::uncached_tokens) {
    estimates_[row].prompt = uncached_tokens(request, view);
  }
}

Charging::Estimate Charging::estimated(sim::RequestId id) const {
  const auto prompt = static_cast<double>(requests_.input_tokens(id));
  switch (cost_.unit) {
    case CostUnit::requests:
      return {.prompt = 1};
    case CostUnit::prompt_tokens:
    case CostUnit::uncached_tokens:
      return {.prompt = std::max(prompt, 1.0)};
    case CostUnit::weighted_tokens:
      break;
  }
  Estimate estimate{.prompt = cost_.prompt_weight * prompt};
  if (!charges_tokens()) {
    estimate.output = cost_.output_weight * cost_.estimate_bias * output_tokens_expected(id);
  }
  return estimate;
}

// Assumes the instance with the best match. At least 1: at no cost, the tenant's turn would not
// end.
double Charging::uncached_tokens(const signals::RequestView& request,
                                 const signals::View& view) const {
  double match = 0;
  for (std::size_t i = 0; i < view.size(); ++i) {
    match = std::max(match, static_cast<double>(view.sent_tokens(request, i)));
  }
  return std::max(static_cast<double>(request.input_tokens()) - match, 1.0);
}

double Charging::output_tokens_expected(sim::RequestId id) const {
  switch (cost_.output_estimate) {
    case OutputEstimate::none:
      return 0;
    case OutputEstimate::oracle:
      return requests_.output_tokens(id);
    case OutputEstimate::predicted:
      return requests_.predicted_output_tokens(id);
    case OutputEstimate::mean:
      break;
  }
  const Outputs& known = outputs_[requests_.tenant(id)];
  return known.count > 0 ? known.sum / known.count : 0;
}

double Charging::at_dispatch(sim::RequestId id) const {
  if (charges_tokens()) return estimate_of(id).prompt;
  return due(ChargeAt::dispatch, id);
}

double Charging::at_end(sim::RequestId id, bool is_completed) {
  const auto emitted = static_cast<double>(requests_.output_tokens(id));
  if (is_completed) {
    Outputs& known = outputs_[requests_.tenant(id)];
    known.sum += emitted;
    ++known.count;
  }
  const Estimate estimate = estimate_of(id);
  const double actual = is_completed ? estimate.prompt + per_token() * emitted : 0;
  switch (cost_.charge_at) {
    case ChargeAt::completion:
      return actual;
    case ChargeAt::token:
      return 0;
    case ChargeAt::first_token:
      if (!is_completed) return 0;
      break;
    case ChargeAt::enqueue:
    case ChargeAt::dispatch:
      break;
  }
  return cost_.settles ? actual - (estimate.prompt + estimate.output) : 0;
}

}  // namespace spillway::gateway
