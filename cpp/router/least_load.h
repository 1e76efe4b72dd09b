#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "router/ties.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/rng.h"

namespace spillway::router {

/// A load of the i-th instance of a view: a whole number that depends on its occupancy and its
/// requests in flight alone.
using Load = std::int64_t (*)(const signals::View& view, std::size_t i);

std::int64_t effective_load(const signals::View& view, std::size_t i);

/// Finds the instance with the smallest load.
///
/// If the view has `load_changes`, the loads are kept in a tournament, and only those of instances
/// that have changed since the last decision are read again. This relies on the view to name every
/// change of an occupancy, of a number in flight and of the ready instances. Otherwise all loads
/// are read. The choice and the draws are the same.
class LeastLoad {
 public:
  LeastLoad(Load load, Ties ties) : load_(load), ties_(ties) {}
  /// Draws only if several loads are the smallest and ties are random.
  sim::InstanceId pick(const signals::View& view, sim::Draws& draws);

 private:
  /// The smallest load of some instances, and how many have it.
  struct Least {
    std::int64_t load;
    std::uint32_t tied;

    bool operator==(const Least&) const = default;
  };
  static Least least_of(const Least& a, const Least& b);

  sim::InstanceId scan(const signals::View& view, sim::Draws& draws) const;
  void build(const signals::View& view);
  void set(std::size_t instance, std::int64_t load);
  // The (skip + 1)-th instance with the smallest load, in order of the fleet.
  sim::InstanceId descend(std::uint64_t skip) const;

  Load load_;
  Ties ties_;
  // A tournament: leaf num_leaves_ + i is instance i of the fleet, node i the least of its children
  // 2i and 2i + 1. An instance that is not ready has no load.
  std::vector<Least> nodes_;
  std::size_t num_leaves_ = 0;
  std::uint64_t read_ = 0;  // changes up to which the loads are read
};

}  // namespace spillway::router
