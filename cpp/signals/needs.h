#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <type_traits>
#include <variant>

#include "sim/schema/traits.h"

namespace spillway::signals {

/// What a policy needs to see, or to be notified of, beyond what every view holds. What no policy
/// of a run needs is neither kept nor sent.
struct Needs {
  bool prefix_index = false;     ///< the gateway's own record of the prefixes that it sent where
  bool outstanding = false;      ///< its own record of what awaits a first token
  bool next_choice = false;      ///< which instance the router would choose
  bool exact_estimate = false;   ///< when the first token will come, which no real gateway knows
  bool first_tokens = false;     ///< notice of each first token
  bool tokens_by_group = false;  ///< tokens that each group of requests has got, to charge them
  bool busy_workers = false;     ///< which workers are busy
  bool fleet_signals = false;    ///< a view also where queues are drained and limits are moved

  bool operator==(const Needs&) const = default;
  /// What either needs.
  friend constexpr Needs operator|(const Needs& a, const Needs& b) {
    using Fields = std::array<bool, sizeof(Needs)>;
    auto either = std::bit_cast<Fields>(a);
    const auto others = std::bit_cast<Fields>(b);
    for (std::size_t i = 0; i < either.size(); ++i) either[i] = either[i] || others[i];
    return std::bit_cast<Needs>(either);
  }
};

/// What `config` needs: its `static constexpr Needs needs`, or what its `needs()` says of its
/// settings; of a variant, what it holds needs; of a list, what any entry does. A configuration
/// without either needs nothing.
template <class Config>
constexpr Needs needs_of(const Config& config) {
  if constexpr (requires { config.needs(); }) {
    return config.needs();
  } else if constexpr (requires { Config::needs; }) {
    return Config::needs;
  } else if constexpr (sim::is_variant<Config>::value) {
    return std::visit([](const auto& held) { return signals::needs_of(held); }, config);
  } else if constexpr (sim::is_vector<Config>::value) {
    Needs all;
    for (const auto& entry : config) all = all | signals::needs_of(entry);
    return all;
  } else {
    return {};
  }
}

}  // namespace spillway::signals
