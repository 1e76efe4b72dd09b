#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::gateway {

class LimitPolicy;

/// A fixed maximum of requests in flight, from dispatch to the last token.
struct FixedLimit {
  std::int64_t max_in_flight = 256;

  static constexpr std::string_view kind = "fixed", type_name = "FixedLimit";
  static constexpr std::string_view doc =
      "At most max_in_flight requests between dispatch and last token; the others wait in their "
      "tenant's queue.";
  static void fields(auto field) {
    field("max_in_flight", &FixedLimit::max_in_flight,
          "Number of permits of the whole gateway; 0: nothing is dispatched.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 4096)
        .runtime();
  }
};

std::unique_ptr<LimitPolicy> make(const FixedLimit& config);

}  // namespace spillway::gateway
