#pragma once

#include <optional>

#include "gateway/fairness/fairness.h"
#include "gateway/queue/tenant_queues.h"
#include "sim/ids.h"

namespace spillway::gateway {

/// The flow with the smallest `key(flow)` among those whose head may start; of equals, the first
/// tenant.
template <class Key>
std::optional<sim::TenantId> least(const TenantQueues& queues,
                                   const FairnessPolicy::MayStart& may_start, const Key& key) {
  std::optional<sim::TenantId> best;
  if (!may_start.any()) return best;
  double best_key = 0;
  for (const sim::TenantId flow : queues.backlogged()) {
    const double its_key = key(flow);
    const bool is_better = !best || its_key < best_key || (its_key == best_key && flow < *best);
    if (is_better && may_start(flow)) {
      best = flow;
      best_key = its_key;
    }
  }
  return best;
}

}  // namespace spillway::gateway
