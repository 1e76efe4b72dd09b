#pragma once

#include <vector>

#include "signals/view.h"
#include "sim/rng.h"

namespace spillway::router {

/// Contract of a filter: which instances come into question for this request? `keep` clears the
/// flags of those that do not, one per instance of the view, and leaves at least one. It is free of
/// effects; draws come from `draws` alone, which belongs to this one decision.
class Filter {
 public:
  virtual ~Filter() = default;
  virtual void keep(const signals::RequestView& request, const signals::View& view,
                    sim::Draws& draws, std::vector<bool>& kept) const = 0;
};

}  // namespace spillway::router
