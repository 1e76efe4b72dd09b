#pragma once

#include <variant>

#include "sim/schema/traits.h"

namespace spillway::sim {

/// Whether random numbers can change the behavior of `config`: the result of its `draws()`; of a
/// variant or an optional, of its content; of a list, of any entry. A configuration without
/// `draws()` is never random.
template <class Config>
constexpr bool can_draw(const Config& config) {
  const auto of_held = [](const auto& held) { return can_draw(held); };
  if constexpr (requires { config.draws(); }) {
    return config.draws();
  } else if constexpr (is_variant<Config>::value) {
    return std::visit(of_held, config);
  } else if constexpr (is_optional<Config>::value) {
    return config && can_draw(*config);
  } else if constexpr (is_vector<Config>::value) {
    for (const auto& entry : config) {
      if (can_draw(entry)) return true;
    }
    return false;
  } else {
    return false;
  }
}

}  // namespace spillway::sim
