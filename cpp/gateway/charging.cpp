#include "gateway/charging.h"

#include <algorithm>

namespace spillway::gateway {

Charging::Charging(const Cost& cost, const workload::RequestTable& requests)
    : cost_(cost), requests_(requests), outputs_(requests.tenants.size()) {}

void Charging::estimate(const signals::RequestView& request, const signals::View& view) {
  const std::size_t row = request.id().index();
  if (estimates_.size() <= row) estimates_.resize(std::max(row + 1, 2 * estimates_.size()));
  Estimate& one = estimates_[row];
  one.prompt = prompt_cost(request, view);
  one.output = 0;
  if (cost_.unit == CostUnit::weighted_tokens && !charges_tokens()) {
    one.output = cost_.output_weight * cost_.estimate_bias * output_tokens_expected(request.id());
  }
}

double Charging::prompt_cost(const signals::RequestView& request, const signals::View& view) const {
  const auto prompt = static_cast<double>(request.input_tokens());
  switch (cost_.unit) {
    case CostUnit::requests:
      return 1;
    case CostUnit::prompt_tokens:
      return std::max(prompt, 1.0);
    case CostUnit::weighted_tokens:
      return cost_.prompt_weight * prompt;
    case CostUnit::uncached_tokens:
      break;
  }
  // Assumes the instance with the best match. At least 1: at no cost, the tenant's turn would not
  // end.
  double match = 0;
  for (std::size_t i = 0; i < view.size(); ++i) {
    match = std::max(match, static_cast<double>(view.sent_tokens(request, i)));
  }
  return std::max(prompt - match, 1.0);
}

double Charging::output_tokens_expected(sim::RequestId id) const {
  switch (cost_.output_estimate) {
    case OutputEstimate::none:
      return 0;
    case OutputEstimate::oracle:
      return requests_.output_tokens(id);
    case OutputEstimate::mean:
      break;
  }
  const Outputs& known = outputs_[requests_.tenant(id)];
  return known.count > 0 ? known.sum / known.count : 0;
}

double Charging::at_dispatch(sim::RequestId id) const {
  if (charges_tokens()) return estimates_[id.index()].prompt;
  return due(ChargeAt::dispatch, id);
}

double Charging::at_end(sim::RequestId id, bool is_completed) {
  const auto emitted = static_cast<double>(requests_.output_tokens(id));
  if (is_completed) {
    Outputs& known = outputs_[requests_.tenant(id)];
    known.sum += emitted;
    ++known.count;
  }
  const Estimate& one = estimates_[id.index()];
  const double actual = is_completed ? one.prompt + per_token() * emitted : 0;
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
  return cost_.settles ? actual - (one.prompt + one.output) : 0;
}

}  // namespace spillway::gateway
