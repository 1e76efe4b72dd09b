#pragma once

#include <memory>
#include <string_view>

#include "router/filters/if_none.h"
#include "signals/needs.h"
#include "signals/saturation.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Filter;

/// Removes instances with too much in flight.
struct ConcurrencyFilter {
  double max_concurrency = 100;
  signals::ConcurrencyMode concurrency_mode = signals::ConcurrencyMode::requests;
  double max_token_concurrency = 1'000'000;
  double headroom = 0;
  IfNone if_none = IfNone::keep_all;

  static constexpr std::string_view kind = "concurrency", type_name = "ConcurrencyFilter";
  static constexpr std::string_view doc =
      "Keeps the instances with less in flight than their limits, each multiplied by 1 + headroom "
      "and rounded down (the filter of llm-d's concurrency-detector, which rejects if there is "
      "none).";
  static void fields(auto field) {
    field("max_concurrency", &ConcurrencyFilter::max_concurrency,
          "Requests in flight at which an instance is full.")
        .unit("requests")
        .range(sim::positive_up_to(1e9))
        .log_search(8, 1024);
    field("concurrency_mode", &ConcurrencyFilter::concurrency_mode,
          "What is counted. requests; tokens: prompt tokens of the requests in flight that were "
          "not sent to the instance before; hybrid: both.");
    field("max_token_concurrency", &ConcurrencyFilter::max_token_concurrency,
          "Prompt tokens in flight at which an instance is full.")
        .unit("tokens")
        .range(sim::positive_up_to(1e12))
        .log_search(1e4, 1e7);
    field("headroom", &ConcurrencyFilter::headroom,
          "Relative excess of the limits that is still allowed.")
        .dimensionless()
        .range(sim::between(0, 1000));
    field("if_none", &ConcurrencyFilter::if_none, kIfNoneDoc);
  }
  signals::Needs needs() const {
    const bool counts_tokens = concurrency_mode != signals::ConcurrencyMode::requests;
    return {.prefix_index = counts_tokens, .in_flight_tokens = counts_tokens};
  }
};

std::unique_ptr<Filter> make(const ConcurrencyFilter& config);

}  // namespace spillway::router
