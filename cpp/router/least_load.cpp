#include "router/least_load.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "router/pick_tied.h"
#include "signals/load_changes.h"

namespace spillway::router {

namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::int64_t effective_load(const signals::View& view, std::size_t i) {
  return view.effective_load(i);
}

sim::InstanceId LeastLoad::pick(const signals::View& view, sim::Draws& draws) {
  const signals::LoadChanges* changes = view.load_changes();
  if (!changes) return scan(view, draws);
  if (nodes_.empty() || !changes->are_known_from(read_)) {
    build(view);
  } else if (read_ < changes->count()) {
    const signals::View fleet = view.whole_fleet();
    for (; read_ < changes->count(); ++read_) {
      const std::size_t i = (*changes)[read_].index();
      if (nodes_[num_leaves_ + i].load != kNone) set(i, load_(fleet, i));
    }
  }
  read_ = changes->count();
  const std::uint32_t tied = nodes_[1].tied;
  return descend(ties_ == Ties::random && tied > 1 ? draws.below(tied) : 0);
}

sim::InstanceId LeastLoad::scan(const signals::View& view, sim::Draws& draws) const {
  std::size_t best = 0;
  std::size_t tied = 1;
  std::int64_t least = load_(view, 0);
  for (std::size_t i = 1; i < view.size(); ++i) {
    const std::int64_t load = load_(view, i);
    if (load < least) {
      best = i;
      least = load;
      tied = 1;
    } else if (load == least) {
      ++tied;
    }
  }
  return view.id(
      pick_tied(ties_, best, tied, draws, [&](std::size_t i) { return load_(view, i) == least; }));
}

LeastLoad::Least LeastLoad::least_of(const Least& a, const Least& b) {
  const std::int64_t load = std::min(a.load, b.load);
  return {load, (a.load == load ? a.tied : 0) + (b.load == load ? b.tied : 0)};
}

void LeastLoad::build(const signals::View& view) {
  num_leaves_ = std::bit_ceil(view.whole_fleet().size());
  nodes_.assign(2 * num_leaves_, {kNone, 1});
  for (std::size_t i = 0; i < view.size(); ++i) {
    nodes_[num_leaves_ + view.id(i).index()].load = load_(view, i);
  }
  for (std::size_t node = num_leaves_ - 1; node > 0; --node) {
    nodes_[node] = least_of(nodes_[2 * node], nodes_[2 * node + 1]);
  }
}

void LeastLoad::set(std::size_t instance, std::int64_t load) {
  std::size_t node = num_leaves_ + instance;
  Least least{load, 1};
  // Above a node that stays the same, nothing changes.
  while (nodes_[node] != least) {
    nodes_[node] = least;
    if (node == 1) return;
    least = least_of(least, nodes_[node ^ 1]);
    node /= 2;
  }
}

sim::InstanceId LeastLoad::descend(std::uint64_t skip) const {
  const std::int64_t least = nodes_[1].load;
  std::size_t node = 1;
  while (node < num_leaves_) {
    node *= 2;
    const std::uint64_t left = nodes_[node].load == least ? nodes_[node].tied : 0;
    if (skip >= left) {
      skip -= left;
      ++node;
    }
  }
  return sim::InstanceId{node - num_leaves_};
}

}  // namespace spillway::router
