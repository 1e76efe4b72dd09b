#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/follows.h"

namespace spillway::router {

class Scorer;

/// The smallest effective load.
struct LoadBalance {
  double weight = 1;

  static constexpr std::string_view kind = "load_balance", type_name = "LoadBalance";
  static constexpr std::string_view doc =
      "1 ÷ (1 + effective load), where the load is waiting + running + in flight (requests that "
      "the instance reports count twice).";
  static void fields(auto field) { add_weight<LoadBalance>(field); }
  signals::Follows follows() const { return signals::Follows::requests; }
};

std::unique_ptr<Scorer> make(const LoadBalance& config);

}  // namespace spillway::router
