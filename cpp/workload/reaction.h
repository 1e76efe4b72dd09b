#pragma once

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
  /// Counts the first attempt of a request, by which retry budgets grow.
  void first_attempt(sim::TenantId tenant);
  /// Wait of the client before its next attempt, after `attempts` attempts have failed, the last
  /// one for `cause` with this Retry-After (0: none). Unset: it does not retry; it does not either
  /// if the wait would exceed `left`.
  std::optional<sim::Time> wait(sim::TenantId tenant, Cause cause, std::int64_t attempts,
                                std::uint32_t row, sim::Time retry_after, sim::Time left);

 private:
  struct State {
    Reaction reaction;
    std::vector<double> budgets;  // by rule
  };
  std::vector<State> tenants_;
  std::uint64_t seed_;
};

/// How a client classifies a rejection of this category; unset: retrying cannot help.
std::optional<Cause> cause_of(const ReasonCategory& category);

}  // namespace spillway::workload
