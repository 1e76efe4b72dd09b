#pragma once

#include <memory>
#include <string_view>

#include "router/ties.h"
#include "signals/follows.h"

namespace spillway::router {

class RoutingPolicy;

/// The instance with the smallest effective load: waiting + running + in flight.
struct LeastLoaded {
  Ties ties = Ties::first;

  static constexpr std::string_view kind = "least_loaded", type_name = "LeastLoaded";
  static constexpr std::string_view doc =
      "The instance with the smallest effective load (waiting + running + in flight; requests that "
      "the instance "
      "reports count twice).";
  static void fields(auto field) {
    field("ties", &LeastLoaded::ties,
          "Choice among equally loaded instances; random draws only if there are several.");
  }
  signals::Follows follows() const { return signals::Follows::requests; }
  bool draws() const { return ties == Ties::random; }
};

std::unique_ptr<RoutingPolicy> make(const LeastLoaded& config);

}  // namespace spillway::router
