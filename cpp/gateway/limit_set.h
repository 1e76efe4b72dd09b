#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gateway/limit/limit.h"
#include "signals/view.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The limits of a gateway: a request may start if all of them agree.
class LimitSet final {
 public:
  explicit LimitSet(std::vector<std::unique_ptr<LimitPolicy>> limits);

  /// Whether the waiting request may start.
  bool may_start(const signals::RequestView& request, const Occasion& occasion) {
    return all_agree([&](const LimitPolicy& limit) { return limit.may_start(request, occasion); },
                     true);
  }
  /// The same, without any effect on `held`.
  bool would_start(const signals::RequestView& request, const Occasion& occasion) const {
    return std::ranges::all_of(
        limits_, [&](const auto& limit) { return limit->may_start(request, occasion); });
  }
  /// Whether the request waits for a limit of its own tenant or class.
  bool is_at_own_limit(const signals::RequestView& request, const Occasion& occasion) const {
    return has_own_limits_ && std::ranges::any_of(limits_, [&](const auto& limit) {
             return limit->is_own() && !limit->may_start(request, occasion);
           });
  }
  /// Whether any request may start at all. `waits`: whether a request waits, so that a closed limit
  /// counts as binding.
  bool is_open(const Occasion& occasion, bool waits) {
    return all_agree([&](const LimitPolicy& limit) { return limit.is_open(occasion); }, waits);
  }
  void started(const signals::RequestView& request) {
    for (const auto& limit : limits_) limit->started(request);
  }
  void prompt_computed(const signals::RequestView& request) {
    for (const auto& limit : limits_) limit->prompt_computed(request);
  }
  void first_token(const signals::RequestView& request) {
    for (const auto& limit : limits_) limit->first_token(request);
  }
  void ended(const signals::RequestView& request) {
    for (const auto& limit : limits_) limit->ended(request);
  }
  /// Sets the number of ready instances, as known to the gateway.
  void set_workers(std::int64_t workers);
  /// Settings or tenants have changed. `from`: those in force before.
  void change(std::span<const Limit> from, std::span<const Limit> to,
              std::span<const workload::Tenant> tenants, bool are_tenants_new);

  /// The highest saturation of the fleet over the limits; 0 if none computes one.
  double saturation(const signals::View* view, sim::Time now) const;
  /// Total permits of the tightest limit; NaN: no limit counts requests.
  double permits() const;
  /// Whether each limit has kept any request waiting so far.
  const std::vector<char>& held() const { return held_; }
  /// Whether a limit is closed that no instance metrics can open.
  bool is_shut(const Occasion& occasion) const;
  /// Whether the answer depends on the request; if not, `may_start` equals `is_open`.
  bool depends_on_request() const { return depends_on_request_; }
  /// Whether a tenant or a class has a limit of its own.
  bool has_own_limits() const { return has_own_limits_; }
  /// Whether a request must be routed before the next one may start.
  bool follow_routing() const { return follow_routing_; }
  /// Whether a first token may let a request start.
  bool frees_at_first_token() const { return frees_at_first_token_; }
  /// The first limit that a controller can move; null: none.
  LimitPolicy* movable() const;

 private:
  bool all_agree(const auto& agrees, bool waits) {
    for (std::size_t i = 0; i < limits_.size(); ++i) {
      if (agrees(*limits_[i])) continue;
      if (waits) held_[i] = 1;
      return false;
    }
    return true;
  }

  std::vector<std::unique_ptr<LimitPolicy>> limits_;
  std::vector<char> held_;  // by limit
  bool frees_at_first_token_;
  bool depends_on_request_;
  bool has_own_limits_;
  bool follow_routing_;
};

}  // namespace spillway::gateway
