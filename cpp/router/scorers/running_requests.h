#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/follows.h"

namespace spillway::router {

class Scorer;

/// The smallest batch.
struct RunningRequests {
  double weight = 1;

  static constexpr std::string_view kind = "running_requests", type_name = "RunningRequests";
  static constexpr std::string_view doc =
      "1 for the smallest batch, 0 for the largest; 1 for all if they are equal.";
  static void fields(auto field) { add_weight<RunningRequests>(field); }
  signals::Follows follows() const { return signals::Follows::steps; }
};

std::unique_ptr<Scorer> make(const RunningRequests& config);

}  // namespace spillway::router
