#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/reaction_config.h"

namespace spillway::workload {

/// A customer, team or application that shares the fleet with others; the unit of fairness.
struct Tenant {
  std::string name = "default";
  double weight = 1;
  std::optional<std::int64_t> queue_max;
  std::optional<std::int64_t> max_in_flight;
  std::optional<Reaction> reaction;
  std::string model;

  static constexpr std::string_view type_name = "Tenant";
  static constexpr std::string_view doc =
      "A customer, team or application that shares the fleet with others; the unit of fairness.";
  static void fields(auto field) {
    field("name", &Tenant::name, "Name; clients and traces refer to it.");
    field("weight", &Tenant::weight,
          "Share of the service to which the tenant is entitled, relative to the other tenants.")
        .dimensionless()
        .range(sim::between(1e-9, 1e9))
        .log_search(0.25, 8)
        .runtime();
    field("queue_max", &Tenant::queue_max,
          "Maximum number of its requests that wait in a band of a gateway; 0: all are rejected; "
          "unset: the max_requests of the band's queue.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 64)
        .runtime();
    field("max_in_flight", &Tenant::max_in_flight,
          "Maximum number of its requests in flight, where a per_tenant limit is in force; 0: none "
          "is dispatched; unset: that limit's own value.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 1024)
        .runtime();
    field("reaction", &Tenant::reaction,
          "How long its clients wait and when they retry; unset: the simulation's reaction.");
    field("model", &Tenant::model,
          "Model of its requests that name none themselves: one of instances[].models, whose "
          "instances alone get them. Empty: none, and any instance serves them.");
  }
};

/// A class of service: the importance of its requests and their latency targets.
struct SloClass {
  std::string name = "standard";
  std::int64_t priority = 3;
  double weight = 1;
  std::optional<double> target_ttft_s;
  std::optional<double> target_tpot_s;
  std::optional<double> target_e2e_s;
  std::optional<double> queue_timeout_s;

  static constexpr std::string_view type_name = "SloClass";
  static constexpr std::string_view doc =
      "A class of service: the importance of its requests and their latency targets. A class "
      "without targets has no goodput.";
  static void fields(auto field) {
    field("name", &SloClass::name, "Name; clients and traces refer to it.");
    field("priority", &SloClass::priority,
          "Importance: higher is more important, negative is sheddable (llm-d's convention).")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("weight", &SloClass::weight, "Weight of the class in weighted_goodput.")
        .dimensionless()
        .range(sim::between(0, 1e9));
    field("target_ttft_s", &SloClass::target_ttft_s,
          "Target for the time from arrival at the gateway to the first token; unset: none.")
        .unit("s")
        .range(sim::more_than(0));
    field("target_tpot_s", &SloClass::target_tpot_s,
          "Target for the time per output token after the first; unset: none.")
        .unit("s")
        .range(sim::more_than(0));
    field("target_e2e_s", &SloClass::target_e2e_s,
          "Target for the time from arrival at the gateway to the last token; unset: none.")
        .unit("s")
        .range(sim::more_than(0));
    field("queue_timeout_s", &SloClass::queue_timeout_s,
          "Time that its requests wait in a gateway at most; unset: the timeout_s of the band's "
          "queue.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.05, 60);
  }

  bool has_targets() const { return target_ttft_s || target_tpot_s || target_e2e_s; }
};

/// The five classes of llm-d and BLIS with their priorities, without targets.
std::vector<SloClass> default_slo_classes();

}  // namespace spillway::workload
