#pragma once

#include <memory>
#include <string_view>

namespace spillway::router {

class RoutingPolicy;

/// Each instance in turn.
struct RoundRobin {
  static constexpr std::string_view kind = "round_robin", type_name = "RoundRobin";
  static constexpr std::string_view doc = "Each instance in turn, regardless of its load.";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<RoutingPolicy> make(const RoundRobin& config);

}  // namespace spillway::router
