#include "gateway/limit_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "sim/schema/codec.h"

namespace spillway::gateway {

LimitSet::LimitSet(std::vector<std::unique_ptr<LimitPolicy>> limits)
    : limits_(std::move(limits)),
      held_(limits_.size()),
      frees_at_first_token_(
          std::any_of(limits_.begin(), limits_.end(),
                      [](const auto& limit) { return limit->frees_at_first_token(); })),
      depends_on_request_(
          std::any_of(limits_.begin(), limits_.end(),
                      [](const auto& limit) { return limit->depends_on_request(); })),
      has_own_limits_(std::any_of(limits_.begin(), limits_.end(),
                                  [](const auto& limit) { return limit->is_own(); })),
      follow_routing_(std::ranges::any_of(
          limits_, [](const auto& limit) { return limit->follows_routing(); })) {}

void LimitSet::set_workers(std::int64_t workers) {
  for (const auto& limit : limits_) limit->set_workers(workers);
}

void LimitSet::change(std::span<const Limit> from, std::span<const Limit> to,
                      std::span<const workload::Tenant> tenants, bool are_tenants_new) {
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    const bool shares = std::holds_alternative<PerTenant>(to[i]) && are_tenants_new;
    if (shares || sim::differ(from[i], to[i])) limits_[i]->change(to[i], tenants);
  }
}

double LimitSet::saturation(const signals::View* view, sim::Time now) const {
  double highest = 0;
  for (const auto& limit : limits_) {
    highest = std::max(highest, limit->saturation({.view = view, .now = now}).value_or(0));
  }
  return highest;
}

double LimitSet::permits() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& limit : limits_) least = std::min(least, limit->permits().value_or(least));
  return std::isinf(least) ? std::numeric_limits<double>::quiet_NaN() : least;
}

bool LimitSet::is_shut(const Occasion& occasion) const {
  return std::any_of(limits_.begin(), limits_.end(), [&](const auto& limit) {
    return !limit->follows_signals() && !limit->is_open(occasion);
  });
}

LimitPolicy* LimitSet::movable() const {
  for (const auto& limit : limits_) {
    if (limit->setting()) return limit.get();
  }
  return nullptr;
}

}  // namespace spillway::gateway
