#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "workload/requests.h"
#include "workload/synthetic.h"

namespace spillway::workload {

/// So many requests are generated between two questions whether to go on.
inline constexpr std::size_t kRequestsBetweenChecks = 1u << 15;

/// The requests of `stream(config, seed, quantum_ns)`, all at once. `interrupted`: asked now and
/// then; once it says yes, Interrupted is thrown. Stands in `synthetic.cpp`.
std::shared_ptr<const Requests> generate(const Synthetic& config, std::uint64_t seed,
                                         std::int64_t quantum_ns,
                                         const std::function<bool()>& interrupted = {});

}  // namespace spillway::workload
