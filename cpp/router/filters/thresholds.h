#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "router/filters/if_none.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Filter;

/// Removes instances above any of several thresholds.
struct Thresholds {
  std::optional<std::int64_t> max_in_flight;
  std::optional<std::int64_t> max_running;
  std::optional<std::int64_t> max_waiting;
  std::optional<double> max_kv_utilization;
  IfNone if_none = IfNone::keep_all;

  static constexpr std::string_view kind = "thresholds", type_name = "Thresholds";
  static constexpr std::string_view doc =
      "Keeps the instances at or below every stated threshold (llm-d's utilization-filter, which "
      "keeps all instances if there is none only with fallbackOnEmpty; with max_in_flight, the cap "
      "per instance of AIBrix and of vLLM's production stack).";
  static void fields(auto field) {
    const auto requests = sim::between(0, 1e9);
    field("max_in_flight", &Thresholds::max_in_flight,
          "Requests that the gateway has sent there and that have not finished; unset: any number.")
        .unit("requests")
        .range(requests)
        .log_search(1, 1024);
    field("max_running", &Thresholds::max_running,
          "Requests in the batch, as reported; unset: any number.")
        .unit("requests")
        .range(requests)
        .log_search(1, 1024);
    field("max_waiting", &Thresholds::max_waiting,
          "Requests in the queue of the engine, as reported; unset: any number.")
        .unit("requests")
        .range(requests)
        .log_search(1, 64);
    field("max_kv_utilization", &Thresholds::max_kv_utilization,
          "Share of KV memory in use, as reported; unset: any share.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 1);
    field("if_none", &Thresholds::if_none, kIfNoneDoc);
  }
};

std::unique_ptr<Filter> make(const Thresholds& config);

}  // namespace spillway::router
