#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/follows.h"

namespace spillway::router {

class Scorer;

/// The fewest requests in flight.
struct ActiveRequests {
  double weight = 1;
  std::int64_t idle_threshold = 0;
  double max_busy_score = 1;

  static constexpr std::string_view kind = "active_requests", type_name = "ActiveRequests";
  static constexpr std::string_view doc =
      "1 for an idle instance, otherwise max_busy_score × (maximum − its number) ÷ maximum of the "
      "requests in flight (llm-d's active-request-scorer).";
  static void fields(auto field) {
    add_weight<ActiveRequests>(field);
    field("idle_threshold", &ActiveRequests::idle_threshold,
          "Requests in flight up to which an instance is idle.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("max_busy_score", &ActiveRequests::max_busy_score, "Factor on the score of the others.")
        .dimensionless()
        .range(sim::between(0, 1));
  }
  // Otherwise instances with different numbers may have equal scores.
  signals::Follows follows() const {
    return idle_threshold == 0 && max_busy_score > 0 ? signals::Follows::requests
                                                     : signals::Follows::nothing;
  }
};

std::unique_ptr<Scorer> make(const ActiveRequests& config);

}  // namespace spillway::router
