#pragma once

#include "signals/view.h"
#include "sim/time.h"

namespace spillway::gateway {

/// Contract of a concurrency limit: may one more request go?
///
/// `is_open` says whether there is room at all, whoever asks; `may_start` whether this request may
/// go. Both are free of effects; `started` takes the permit, `first_token` and `ended` follow for
/// the same request, `ended` exactly once whatever became of it. `resize` sets the limit from
/// outside (a controller); work that is in flight is never interrupted, so the number in flight may
/// exceed a limit that has just shrunk.
class LimitPolicy {
 public:
  virtual ~LimitPolicy() = default;
  virtual bool is_open(sim::Time now) const = 0;
  virtual bool may_start(const signals::RequestView& request, sim::Time now) const = 0;
  virtual void started(const signals::RequestView& request, sim::Time now) = 0;
  virtual void first_token(const signals::RequestView& request, sim::Time now) = 0;
  virtual void ended(const signals::RequestView& request, sim::Time now) = 0;
  virtual void resize(double limit, sim::Time now) = 0;
};

}  // namespace spillway::gateway
