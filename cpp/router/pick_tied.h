#pragma once

#include <cstddef>
#include <cstdint>

#include "router/ties.h"
#include "sim/rng.h"

namespace spillway::router {

/// The chosen one of `tied` equal positions, of which `first` is the first. Draws only if there are
/// several. `is_tied`: whether a position behind `first` is one of them.
template <class IsTied>
std::size_t pick_tied(Ties ties, std::size_t first, std::size_t tied, sim::Draws& draws,
                      const IsTied& is_tied) {
  if (ties == Ties::first || tied <= 1) return first;
  std::size_t position = first;
  for (std::uint64_t skip = draws.below(tied); skip > 0; --skip) {
    do {
      ++position;
    } while (!is_tied(position));
  }
  return position;
}

}  // namespace spillway::router
