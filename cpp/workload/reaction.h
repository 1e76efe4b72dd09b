#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/reaction_config.h"

namespace spillway::workload {

/// The reactions of clients in one run: withdrawals and retries. The first rule that applies to the
/// cause of a failure decides.
class Reactions {
 public:
  /// `of_tenant`: by tenant; unset: the tenant uses `everyone`'s.
  Reactions(const Reaction& everyone, const std::vector<std::optional<Reaction>>& of_tenant,
            std::uint64_t seed);

  const Reaction& of(sim::TenantId tenant) const { return tenants_[tenant.index()].reaction; }
  /// Counts the first attempt of a request, by which the budgets of retries and copies grow.
  void first_attempt(sim::TenantId tenant);
  /// Whether any rule limits the retries under way: then each attempt is announced, and its end.
  bool counts_attempts() const { return counts_attempts_; }
  void began(sim::TenantId tenant) { ++group_of(tenant).active; }
  void ended(sim::TenantId tenant, bool was_retry) {
    --group_of(tenant).active;
    if (was_retry) --group_of(tenant).retrying;
  }
  /// A retry that was waiting is not sent.
  void gave_up(sim::TenantId tenant) { --group_of(tenant).retrying; }
  /// Whether the budget allows a copy of a request, which it then pays for. Precondition: the
  /// tenant hedges.
  bool may_hedge(sim::TenantId tenant);
  /// Wait of the client before its next attempt, after `attempts` attempts have failed, the last
  /// one for `cause` with this Retry-After (0: none). Unset: it does not retry; it does not either
  /// if the wait would exceed `left`.
  std::optional<sim::Time> wait(sim::TenantId tenant, Cause cause, std::int64_t attempts,
                                std::uint32_t row, sim::Time retry_after, sim::Time left);

 private:
  // What a tenant may send besides first attempts, which add to it.
  struct Budget {
    std::optional<double> ratio;  // unset: there is no budget
    double burst = 0;
    double left = burst;

    void grow() { left = std::min(burst, left + ratio.value_or(0)); }
    bool pay();  // for one attempt; false: it is not sent
  };
  struct State {
    Reaction reaction;
    std::vector<Budget> retry_budgets;  // by rule
    Budget hedge_budget;
    std::size_t group = 0;
  };
  // The clients that share a reaction.
  struct Group {
    std::int64_t active = 0;    // attempts under way
    std::int64_t retrying = 0;  // retries that wait or are under way
  };
  Group& group_of(sim::TenantId tenant) { return groups_[tenants_[tenant.index()].group]; }
  std::vector<State> tenants_;
  std::vector<Group> groups_;  // the first one has the clients without a reaction of their own
  bool counts_attempts_ = false;
  std::uint64_t seed_;
};

/// How a client classifies a rejection of this category; unset: retrying cannot help.
std::optional<Cause> cause_of(const ReasonCategory& category);

}  // namespace spillway::workload
