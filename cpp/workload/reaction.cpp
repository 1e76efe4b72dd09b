#include "workload/reaction.h"

#include <algorithm>

#include "sim/math.h"
#include "sim/rng.h"

namespace spillway::workload {

bool Retry::applies_to(Cause cause) const {
  return on.empty() || std::find(on.begin(), on.end(), cause) != on.end();
}

double Retry::wait_s(std::int64_t attempts, double uniform) const {
  const double wait =
      std::min(max_backoff_s, backoff_s * sim::pow(multiplier, static_cast<double>(attempts - 1)));
  switch (jitter) {
    case Jitter::full:
      return wait * uniform;
    case Jitter::equal:
      return wait * (0.5 + 0.5 * uniform);
    case Jitter::additive:
      return std::min(max_backoff_s, wait + backoff_s * uniform);
    case Jitter::none:
      break;
  }
  return wait;
}

std::optional<Cause> cause_of(const ReasonCategory& category) {
  // Every target system returns the same status for both.
  if (category.name == categories::kEvictedPriority.name) return Cause::saturated;
  constexpr auto& names = sim::EnumNames<Cause>::names;
  const auto found = std::find(names.begin(), names.end(), category.name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Cause>(found - names.begin());
}

Reactions::Reactions(const Reaction& everyone,
                     const std::vector<std::optional<Reaction>>& of_tenant, std::uint64_t seed)
    : seed_(seed) {
  for (const std::optional<Reaction>& own : of_tenant) {
    State state{own.value_or(everyone), {}};
    for (const Retry& retry : state.reaction.retries) state.budgets.push_back(retry.budget_burst);
    tenants_.push_back(std::move(state));
  }
}

void Reactions::first_attempt(sim::TenantId tenant) {
  State& state = tenants_[tenant.index()];
  for (std::size_t i = 0; i < state.budgets.size(); ++i) {
    const Retry& retry = state.reaction.retries[i];
    state.budgets[i] =
        std::min(retry.budget_burst, state.budgets[i] + retry.budget_ratio.value_or(0));
  }
}

std::optional<sim::Time> Reactions::wait(sim::TenantId tenant, Cause cause, std::int64_t attempts,
                                         std::uint32_t row, sim::Time retry_after, sim::Time left) {
  State& state = tenants_[tenant.index()];
  const std::vector<Retry>& rules = state.reaction.retries;
  const auto rule = std::find_if(rules.begin(), rules.end(),
                                 [&](const Retry& retry) { return retry.applies_to(cause); });
  if (rule == rules.end() || attempts >= rule->max_attempts) return std::nullopt;
  sim::Draws draws(seed_, sim::Stream::retries, row, static_cast<std::uint64_t>(attempts));
  const bool obeys = rule->obeys_retry_after && retry_after > sim::Time{0};
  const sim::Time wait =
      obeys ? retry_after : sim::from_seconds(rule->wait_s(attempts, draws.uniform()));
  if (wait >= left) return std::nullopt;
  if (rule->budget_ratio) {
    double& budget = state.budgets[static_cast<std::size_t>(rule - rules.begin())];
    if (budget < 1) return std::nullopt;
    budget -= 1;
  }
  return wait;
}

}  // namespace spillway::workload
