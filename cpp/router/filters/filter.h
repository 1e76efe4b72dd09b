#pragma once

#include <algorithm>
#include <vector>

#include "signals/view.h"
#include "sim/rng.h"

namespace spillway::router {

/// Contract of a filter: which instances are candidates for this request? `keep` clears the flags
/// of the others, one flag per instance of the view; if it leaves none, the router ignores it,
/// or rejects the request if the filter `rejects`. It has no side effects; draws come only from
/// `draws`, which belongs to this decision.
class Filter {
 public:
  virtual ~Filter() = default;
  virtual void keep(const signals::RequestView& request, const signals::View& view,
                    sim::Draws& draws, std::vector<bool>& kept) const = 0;
  /// Whether a request of which it leaves no instance is rejected; constant.
  virtual bool rejects() const { return false; }
};

/// Keeps the kept instances that fit.
template <class Fits>
void keep_only(std::vector<bool>& kept, const Fits& fits) {
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = kept[i] && fits(i);
}

/// Keeps the kept instances that fit, unless none does.
template <class Fits>
void keep_fitting(std::vector<bool>& kept, const Fits& fits) {
  std::vector<bool> fitting = kept;
  for (std::size_t i = 0; i < kept.size(); ++i) fitting[i] = kept[i] && fits(i);
  if (std::find(fitting.begin(), fitting.end(), true) != fitting.end()) kept.swap(fitting);
}

}  // namespace spillway::router
