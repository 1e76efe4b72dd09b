#pragma once

#include <memory>

#include "sim/value.h"

namespace spillway::router {

class Scorer;

/// Makes scorers that are defined outside of the core.
struct ScorerFactory : virtual sim::Attachment {
  /// A new one, for one run.
  virtual std::unique_ptr<Scorer> make_scorer() const = 0;
};

}  // namespace spillway::router
