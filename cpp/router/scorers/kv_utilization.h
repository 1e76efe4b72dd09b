#pragma once

#include <memory>
#include <string_view>
#include <tuple>

#include "router/scorers/scorer.h"
#include "sim/field.h"

namespace spillway::router {

/// The most free KV memory.
struct KvUtilization {
  double weight = 1;

  static constexpr std::string_view kind = "kv_utilization", type_name = "KvUtilization";
  static constexpr std::string_view doc = "1 minus the share of KV blocks in use.";
  static constexpr auto fields() { return std::tuple(weight_field<KvUtilization>()); }
};

std::unique_ptr<Scorer> make(const KvUtilization& config);

}  // namespace spillway::router
