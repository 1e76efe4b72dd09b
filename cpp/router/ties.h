#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/rng.h"
#include "sim/schema/enum.h"

namespace spillway::router {

/// Which of equally good instances is taken.
enum class Ties : std::uint8_t { first, random };

/// The position taken of `tied` equally good ones, the first of which is `first`. Draws only if
/// there are several. `is_tied` tells of a position behind it whether it is one of them.
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

template <>
struct spillway::sim::EnumNames<spillway::router::Ties> {
  static constexpr std::array<std::string_view, 2> names{"first", "random"};
};
