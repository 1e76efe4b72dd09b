#pragma once

#include <algorithm>
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

/// Keeps those that are kept and fit, unless none does.
template <class Fits>
void keep_fitting(std::vector<bool>& kept, const Fits& fits) {
  std::vector<bool> fitting = kept;
  for (std::size_t i = 0; i < kept.size(); ++i) fitting[i] = kept[i] && fits(i);
  if (std::find(fitting.begin(), fitting.end(), true) != fitting.end()) kept.swap(fitting);
}

}  // namespace spillway::router
