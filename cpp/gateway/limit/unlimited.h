#pragma once

#include <memory>
#include <string_view>

namespace spillway::gateway {

class LimitPolicy;

/// Every request may start immediately.
struct Unlimited {
  static constexpr std::string_view kind = "unlimited", type_name = "Unlimited";
  static constexpr std::string_view doc = "Every admitted request is dispatched immediately.";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<LimitPolicy> make(const Unlimited& config);

}  // namespace spillway::gateway
