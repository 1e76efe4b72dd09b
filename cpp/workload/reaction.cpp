#include "workload/reaction.h"

#include <algorithm>
#include <cmath>

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

void Reaction::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (!hedge || retries.empty()) return;
  out.push_back({sim::join_path(path, "retries"), std::to_string(retries.size()) + " rules",
                 "must be empty where clients hedge"});
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
    : groups_(1), seed_(seed) {
  for (const std::optional<Reaction>& own : of_tenant) {
    State state{.reaction = own.value_or(everyone), .group = own ? groups_.size() : 0};
    if (own) groups_.emplace_back();
    counts_attempts_ = counts_attempts_ || state.reaction.limits_concurrency();
    for (const Retry& retry : state.reaction.retries) {
      state.retry_budgets.push_back({retry.budget_ratio, retry.budget_burst});
    }
    if (const auto& hedge = state.reaction.hedge) {
      state.hedge_budget = {hedge->budget_ratio, hedge->budget_burst};
    }
    tenants_.push_back(std::move(state));
  }
}

void Reactions::first_attempt(sim::TenantId tenant) {
  State& state = tenants_[tenant.index()];
  for (Budget& budget : state.retry_budgets) budget.grow();
  state.hedge_budget.grow();
}

bool Reactions::Budget::pay() {
  if (!ratio) return true;
  if (left < 1) return false;
  left -= 1;
  return true;
}

bool Reactions::may_hedge(sim::TenantId tenant) {
  return tenants_[tenant.index()].hedge_budget.pay();
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
  if (rule->active_share) {
    const Group& group = group_of(tenant);
    const double share = std::floor(*rule->active_share * static_cast<double>(group.active));
    const std::int64_t most =
        std::max(rule->min_concurrent_retries, static_cast<std::int64_t>(share));
    if (group.retrying >= most) return std::nullopt;
  }
  Budget& budget = state.retry_budgets[static_cast<std::size_t>(rule - rules.begin())];
  if (!budget.pay()) return std::nullopt;
  if (counts_attempts_) ++group_of(tenant).retrying;
  return wait;
}

}  // namespace spillway::workload
