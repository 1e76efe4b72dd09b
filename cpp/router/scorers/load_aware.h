#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/follows.h"

namespace spillway::router {

class Scorer;

/// A short queue, up to a threshold.
struct LoadAware {
  double weight = 1;
  std::int64_t threshold = kDefaultThreshold;

  static constexpr std::string_view kind = "load_aware", type_name = "LoadAware";
  static constexpr std::string_view doc =
      "0.5 for an empty engine queue, falling to 0 at `threshold` waiting requests (llm-d's "
      "load-aware scorer).";
  static void fields(auto field) {
    add_weight<LoadAware>(field);
    field("threshold", &LoadAware::threshold, "Waiting requests with a score of 0.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(8, 1024);
  }
  signals::Follows follows() const {
    return threshold == kDefaultThreshold ? signals::Follows::steps : signals::Follows::nothing;
  }
  static constexpr std::int64_t kDefaultThreshold = 128;
};

std::unique_ptr<Scorer> make(const LoadAware& config);

}  // namespace spillway::router
