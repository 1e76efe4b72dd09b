#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/follows.h"

namespace spillway::router {

class Scorer;

/// The fewest requests in flight.
struct ActiveRequests {
  double weight = 1;

  static constexpr std::string_view kind = "active_requests", type_name = "ActiveRequests";
  static constexpr std::string_view doc =
      "1 for an instance without requests in flight, otherwise (maximum − its number) ÷ maximum.";
  static void fields(auto field) { add_weight<ActiveRequests>(field); }
  signals::Follows follows() const { return signals::Follows::requests; }
};

std::unique_ptr<Scorer> make(const ActiveRequests& config);

}  // namespace spillway::router
