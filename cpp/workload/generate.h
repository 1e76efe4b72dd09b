#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "workload/requests.h"
#include "workload/synthetic.h"

namespace spillway::workload {

/// Number of requests generated between two checks for an interruption.
inline constexpr std::size_t kRequestsBetweenChecks = 1u << 15;

/// All requests of `stream(config, seed, quantum_ns)`. Calls `interrupted` now and then, and throws
/// Interrupted once it returns true. Defined in `synthetic.cpp`.
std::shared_ptr<const Requests> generate(const Synthetic& config, std::uint64_t seed,
                                         std::int64_t quantum_ns,
                                         const std::function<bool()>& interrupted = {});

}  // namespace spillway::workload
