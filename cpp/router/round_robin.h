#pragma once

#include <memory>
#include <string_view>

namespace spillway::router {

class RoutingPolicy;

/// Each instance in turn.
struct RoundRobin {
  bool per_model = true;

  static constexpr std::string_view kind = "round_robin", type_name = "RoundRobin";
  static constexpr std::string_view doc = "Each instance in turn, regardless of its load.";
  static void fields(auto field) {
    field("per_model", &RoundRobin::per_model,
          "Whether the requests of each model have turns of their own. Otherwise "
          "one count is taken modulo the number of instances that serve the model of a request.");
  }
};

std::unique_ptr<RoutingPolicy> make(const RoundRobin& config);

}  // namespace spillway::router
