#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/schema/range.h"
#include "workload/reaction_config.h"

namespace spillway::workload {

/// Someone who shares the fleet with others.
struct Tenant {
  std::string name = "default";
  double weight = 1;
  std::optional<std::int64_t> queue_max;
  std::optional<std::int64_t> max_in_flight;
  std::optional<Reaction> reaction;

  static constexpr std::string_view type_name = "Tenant";
  static constexpr std::string_view doc = "Someone who shares the fleet with others.";
  static void fields(auto field) {
    field("name", &Tenant::name, "Name by which clients and traces refer to the tenant.");
    field("weight", &Tenant::weight,
          "Share of the service that the tenant is entitled to, relative to the others.")
        .dimensionless()
        .range(sim::between(1e-9, 1e9))
        .log_search(0.25, 8);
    field("queue_max", &Tenant::queue_max,
          "Most of its requests that wait in a band of a gateway; 0: all are refused; absent: "
          "the band's own max_requests.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 64);
    field("max_in_flight", &Tenant::max_in_flight,
          "Most of its requests in flight, where a per_tenant limit is in force; 0: none is "
          "dispatched; absent: that limit's own.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 1024);
    field("reaction", &Tenant::reaction,
          "How long its clients wait and when they ask again; absent: as everyone.");
  }
};

/// A class of service: how important its requests are and what latency they are promised.
struct SloClass {
  std::string name = "standard";
  std::int64_t priority = 3;
  double weight = 1;
  std::optional<double> target_ttft_s;
  std::optional<double> target_tpot_s;
  std::optional<double> target_e2e_s;

  static constexpr std::string_view type_name = "SloClass";
  static constexpr std::string_view doc =
      "A class of service: how important its requests are and what latency they are promised. A "
      "class without "
      "targets has no goodput.";
  static void fields(auto field) {
    field("name", &SloClass::name, "Name by which clients and traces refer to the class.");
    field("priority", &SloClass::priority,
          "Importance: higher is more important, negative is sheddable (llm-d's convention).")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("weight", &SloClass::weight, "Weight of the class in weighted_goodput.")
        .dimensionless()
        .range(sim::between(0, 1e9));
    field("target_ttft_s", &SloClass::target_ttft_s,
          "Promised time from arrival at the gateway to the first token; absent: none.")
        .unit("s")
        .range(sim::more_than(0));
    field("target_tpot_s", &SloClass::target_tpot_s,
          "Promised time per output token after the first; absent: none.")
        .unit("s")
        .range(sim::more_than(0));
    field("target_e2e_s", &SloClass::target_e2e_s,
          "Promised time from arrival at the gateway to the last token; absent: none.")
        .unit("s")
        .range(sim::more_than(0));
  }

  bool has_targets() const { return target_ttft_s || target_tpot_s || target_e2e_s; }
};

/// The five classes of llm-d and BLIS with their priorities, without targets.
std::vector<SloClass> default_slo_classes();

}  // namespace spillway::workload
