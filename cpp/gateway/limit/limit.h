#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "gateway/limit/policies.h"
#include "signals/view.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The context of a call to a limit.
struct Occasion {
  /// Saturation from which the request's band is closed.
  double ceiling = 1;
  /// The fleet's view; null unless a limit of the gateway reads it.
  const signals::View* view = nullptr;
  sim::Time now{0};
};

/// Contract of a concurrency limit: may one more request go?
///
/// `is_open`: whether any request may start at all; `may_start`: whether this one may, which
/// implies `is_open`. Both have no side effects. `started` takes the permit; `prompt_computed` (if
/// another instance continues the request), `first_token` and `ended` follow for the same request,
/// `ended` exactly once for any outcome. Requests in flight
/// are never interrupted, so their number may exceed a limit that has just shrunk.
///
/// `setting`: the value that a controller may move with `resize`; unset if not movable. `permits`:
/// the total number of permits; unset if not counted in requests.
class LimitPolicy {
 public:
  virtual ~LimitPolicy() = default;
  virtual bool is_open(const Occasion& occasion) const = 0;
  virtual bool may_start(const signals::RequestView& request, const Occasion& occasion) const = 0;
  virtual void started(const signals::RequestView& request) = 0;
  virtual void prompt_computed(const signals::RequestView& /*request*/) {}
  virtual void first_token(const signals::RequestView& /*request*/) {}
  virtual void ended(const signals::RequestView& request) = 0;

  virtual std::optional<double> setting() const { return std::nullopt; }
  virtual std::optional<double> permits() const { return setting(); }
  virtual void resize(double /*setting*/) {}
  /// The saturation of the fleet by this limit, to which the ceilings apply; unset: they do not.
  virtual std::optional<double> saturation(const Occasion& /*occasion*/) const {
    return std::nullopt;
  }
  /// Whether its answers depend on instance metrics.
  virtual bool follows_signals() const { return false; }
  /// Whether the answer of `may_start` depends on the request; if not, it is that of `is_open`.
  virtual bool depends_on_request() const { return false; }
  /// Whether it limits tenants or classes by themselves: what it holds does not stop others.
  virtual bool is_own() const { return false; }
  /// Whether a first token or a computed prompt may allow another request to start. The
  /// configuration's needs then include `first_tokens`.
  virtual bool frees_at_first_token() const { return false; }
  /// Whether a request must be routed before the next one may start, because only then it counts.
  virtual bool follows_routing() const { return false; }
  /// Settings have changed: its own, or those of the tenants.
  virtual void change(const Limit& /*to*/, std::span<const workload::Tenant> /*tenants*/) {}
  /// Sets the number of ready instances, as known to the gateway.
  virtual void set_workers(std::int64_t /*workers*/) {}
};

}  // namespace spillway::gateway
