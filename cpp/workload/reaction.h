#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/reaction_config.h"

namespace spillway::workload {

/// What clients do about their requests in one run. Rules are asked in order; the first that
/// applies to the cause decides.
class Reactions {
 public:
  /// `of_tenant`: by tenant; none: `everyone`'s.
  Reactions(const Reaction& everyone, const std::vector<std::optional<Reaction>>& of_tenant,
            std::uint64_t seed);

  const Reaction& of(sim::TenantId tenant) const { return tenants_[tenant.index()].reaction; }
  /// A request is asked for the first time: what retry budgets grow by.
  void first_attempt(sim::TenantId tenant);
  /// How long the client waits before it asks again, now that so many attempts of its request have
  /// failed, the last one for `cause`; none: it gives up, as it does rather than wait for `left`.
  std::optional<sim::Time> wait(sim::TenantId tenant, Cause cause, std::int64_t attempts,
                                std::uint32_t row, sim::Time left);

 private:
  struct State {
    Reaction reaction;
    std::vector<double> budgets;  // by rule
  };
  std::vector<State> tenants_;
  std::uint64_t seed_;
};

/// What a client makes of a reason's word; none: to ask again would be of no use.
std::optional<Cause> cause_of(const ReasonCategory& category);

}  // namespace spillway::workload
