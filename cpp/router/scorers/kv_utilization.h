#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// The most free KV memory.
struct KvUtilization {
  double weight = 1;

  static constexpr std::string_view kind = "kv_utilization", type_name = "KvUtilization";
  static constexpr std::string_view doc = "1 minus the share of KV blocks in use.";
  static void fields(auto field) { add_weight<KvUtilization>(field); }
};

std::unique_ptr<Scorer> make(const KvUtilization& config);

}  // namespace spillway::router
