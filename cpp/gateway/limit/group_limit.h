#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/schema/range.h"
#include "workload/tenants.h"

namespace spillway::gateway {

class LimitPolicy;

/// A maximum of requests in flight of some tenants, classes or models together.
struct GroupLimit {
  std::int64_t max_in_flight = 64;
  std::vector<std::string> tenants;
  std::vector<std::string> slo_classes;
  std::vector<std::string> models;

  static constexpr std::string_view kind = "group", type_name = "GroupLimit";
  static constexpr std::string_view doc =
      "At most max_in_flight requests of these tenants, classes and models together between "
      "dispatch and last token; it does not concern other requests, and they overtake what it "
      "holds. A controller moves max_in_flight, so the latency of one class can drive the limit of "
      "another.";
  static void fields(auto field) {
    field("max_in_flight", &GroupLimit::max_in_flight,
          "Number of permits of the group; 0: none of its requests is dispatched.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 1024)
        .runtime();
    field("tenants", &GroupLimit::tenants, "Tenants of the group; empty: all.");
    field("slo_classes", &GroupLimit::slo_classes,
          "Classes of the group; empty: all. A request belongs to it by tenant, class and model.");
    field(
        "models", &GroupLimit::models,
        "Models of the group, as requests name them, themselves or by their tenants; empty: all.");
  }
};

std::unique_ptr<LimitPolicy> make(const GroupLimit& config,
                                  std::span<const workload::Tenant> tenants,
                                  std::span<const workload::SloClass> slo_classes);

}  // namespace spillway::gateway
