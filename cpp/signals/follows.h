#pragma once

#include <cstdint>
#include <variant>

#include "sim/schema/traits.h"

namespace spillway::signals {

/// Which changes of an instance a policy follows, so that it reads only changed instances again.
enum class Follows : std::uint8_t {
  nothing,   ///< it reads every instance at every decision
  requests,  ///< requests that are sent there, enter, or leave
  steps,     ///< these, and the start and end of steps
};

/// What a configuration follows: what `follows()` says; of a variant, the held alternative. A
/// configuration without it follows nothing.
template <class Config>
constexpr Follows follows_of(const Config& config) {
  if constexpr (requires { config.follows(); }) {
    return config.follows();
  } else if constexpr (sim::is_variant<Config>::value) {
    return std::visit([](const auto& held) { return signals::follows_of(held); }, config);
  } else {
    return Follows::nothing;
  }
}

}  // namespace spillway::signals
