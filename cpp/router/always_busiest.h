#pragma once

#include <memory>
#include <string_view>

#include "signals/follows.h"

namespace spillway::router {

class RoutingPolicy;

/// The instance with the largest effective load, the first of equals: the worst case.
struct AlwaysBusiest {
  static constexpr std::string_view kind = "always_busiest", type_name = "AlwaysBusiest";
  static constexpr std::string_view doc =
      "The instance with the largest effective load, the first of equals; for testing the worst "
      "case.";
  static void fields(auto /*field*/) {}
  signals::Follows follows() const { return signals::Follows::requests; }
};

std::unique_ptr<RoutingPolicy> make(const AlwaysBusiest& config);

}  // namespace spillway::router
