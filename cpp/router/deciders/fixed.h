#pragma once

#include <memory>
#include <string_view>

namespace spillway::router {

class Decider;

/// Every prompt is computed in the prefill pool.
struct AlwaysRemote {
  static constexpr std::string_view kind = "always", type_name = "AlwaysRemote";
  static constexpr std::string_view doc =
      "Every prompt is computed in the prefill pool: what Dynamo does by default, and llm-d with "
      "always-disagg-pd-decider.";
  static void fields(auto /*field*/) {}
};

/// Every request is served by one instance of the decode pool.
struct NeverRemote {
  static constexpr std::string_view kind = "never", type_name = "NeverRemote";
  static constexpr std::string_view doc =
      "Every request is served by one instance of the decode pool: what llm-d does without a "
      "decider.";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<Decider> make(const AlwaysRemote& config);
std::unique_ptr<Decider> make(const NeverRemote& config);

}  // namespace spillway::router
