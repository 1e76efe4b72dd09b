#pragma once

#include <cstdint>
#include <optional>

#include "signals/view.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The circumstances in which a limit is asked.
struct Occasion {
  /// Saturation from which the band that asks is closed.
  double ceiling = 1;
  /// What the instances report; null unless some limit of the gateway reads it.
  const signals::View* view = nullptr;
  sim::Time now{0};
};

/// Contract of a concurrency limit: may one more request go?
///
/// `is_open` says whether any request may go at all; `may_start` whether this one may, and implies
/// `is_open`. Both are free of effects; `started` takes the permit, `first_token`
/// and `ended` follow for the same request, `ended` exactly once whatever became of it. Work that
/// is in flight is never interrupted, so more may be in flight than a limit that has just shrunk
/// allows.
///
/// `setting` is what a controller may move with `resize`, none if nothing; `permits` what that
/// amounts to in all, none if it is not counted in requests.
class LimitPolicy {
 public:
  virtual ~LimitPolicy() = default;
  virtual bool is_open(const Occasion& occasion) const = 0;
  virtual bool may_start(const signals::RequestView& request, const Occasion& occasion) const = 0;
  virtual void started(const signals::RequestView& request) = 0;
  virtual void first_token(const signals::RequestView& /*request*/) {}
  virtual void ended(const signals::RequestView& request) = 0;

  virtual std::optional<double> setting() const { return std::nullopt; }
  virtual std::optional<double> permits() const { return setting(); }
  virtual void resize(double /*setting*/) {}
  /// How saturated the fleet is by this limit's reckoning, which the ceilings apply to; none: they
  /// do not.
  virtual std::optional<double> saturation(const Occasion& /*occasion*/) const {
    return std::nullopt;
  }
  /// Whether its answers change with what the instances report.
  virtual bool follows_signals() const { return false; }
  /// Whether one request may start where another may not.
  virtual bool depends_on_request() const { return false; }
  /// Whether a first token may let another request start. Its configuration then needs
  /// `first_tokens`.
  virtual bool frees_at_first_token() const { return false; }
  /// So many instances are ready, as far as the gateway knows.
  virtual void set_workers(std::int64_t /*workers*/) {}
};

}  // namespace spillway::gateway
