#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/follows.h"

namespace spillway::router {

class Scorer;

/// A short queue, up to a threshold.
struct LoadAware {
  double weight = 1;

  static constexpr std::string_view kind = "load_aware", type_name = "LoadAware";
  static constexpr std::string_view doc =
      "0.5 for an empty engine queue, falling to 0 at 128 waiting requests (llm-d's load-aware "
      "scorer).";
  static void fields(auto field) { add_weight<LoadAware>(field); }
  signals::Follows follows() const { return signals::Follows::steps; }
};

std::unique_ptr<Scorer> make(const LoadAware& config);

}  // namespace spillway::router
