#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <type_traits>
#include <variant>

#include "sim/schema/traits.h"

namespace spillway::signals {

/// The information and notifications that a policy needs beyond the contents of every view.
/// Information that no policy of a run needs is neither kept nor sent.
struct Needs {
  bool prefix_index = false;      ///< the gateway's own record of prefixes and where it sent them
  bool outstanding = false;       ///< its own record of requests that await a first token
  bool next_choice = false;       ///< the instance that the router would choose
  bool exact_estimate = false;    ///< the time of the first token, which no real gateway knows
  bool first_tokens = false;      ///< notification of each first token
  bool tokens_by_group = false;   ///< tokens emitted by each group of requests, to charge them
  bool busy_workers = false;      ///< the busy workers
  bool fleet_signals = false;     ///< a view also in drains of the queues and in controller ticks
  bool in_flight_tokens = false;  ///< its own count of prompt tokens in flight on each instance
  bool predictions = false;       ///< predicted latencies of a request on each instance
  bool output_lengths = false;    ///< the predicted output length of a request

  bool operator==(const Needs&) const = default;
  /// The union of both.
  friend constexpr Needs operator|(const Needs& a, const Needs& b) {
    using Fields = std::array<bool, sizeof(Needs)>;
    auto either = std::bit_cast<Fields>(a);
    const auto others = std::bit_cast<Fields>(b);
    for (std::size_t i = 0; i < either.size(); ++i) either[i] = either[i] || others[i];
    return std::bit_cast<Needs>(either);
  }
};

/// The needs of `config`: its `static constexpr Needs needs`, or the result of its `needs()`; of a
/// variant, those of the held alternative; of a list, the union over its entries. A configuration
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
