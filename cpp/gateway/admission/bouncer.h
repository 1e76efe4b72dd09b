#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/range.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// Rejects requests that would miss their targets, but admits some of every class.
struct Bouncer {
  double percentile = 90;
  std::int64_t samples = 100;
  std::int64_t min_samples = 10;
  double min_share = 0.05;
  std::int64_t share_requests = 100;

  static constexpr std::string_view kind = "bouncer", type_name = "Bouncer";
  static constexpr std::string_view doc =
      "Admits a request if its estimated times to the first token and to the last meet the targets "
      "of its class (Bouncer of LinkedIn; a class is a type of query). The estimate is the wait in "
      "the gateway's queues, that is the sum over the classes of queued requests × their mean time "
      "in flight ÷ current requests in flight, plus a percentile of the class's own time from "
      "dispatch. Time in the engines' queues counts as processing. The targets are target_ttft_s "
      "and target_e2e_s; a class without them is always admitted.";
  static void fields(auto field) {
    field("percentile", &Bouncer::percentile,
          "Percentile of the class's measured times, by NumPy's linear definition.")
        .unit("%")
        .range(sim::between(0, 100))
        .search(50, 99)
        .runtime();
    field("samples", &Bouncer::samples, "Number of a class's latest requests in that percentile.")
        .unit("requests")
        .range(sim::between(1, 1e5))
        .log_search(20, 1000);
    field("min_samples", &Bouncer::min_samples,
          "Minimum number of measured requests; a class with fewer is admitted.")
        .unit("requests")
        .range(sim::between(1, 1e5))
        .runtime();
    field(
        "min_share", &Bouncer::min_share,
        "Minimum share of a class's latest requests that is admitted, regardless of the estimate.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.01, 0.3);
    field("share_requests", &Bouncer::share_requests,
          "Number of the class's latest requests in that share.")
        .unit("requests")
        .range(sim::between(1, 1e6))
        .log_search(20, 1000);
  }
  static constexpr bool observes = true;
  static constexpr std::array reasons{workload::Reason{
      "bouncer", workload::categories::kSaturated,
      "the estimated percentile of the request's latency exceeds the target of its class"}};
};

std::unique_ptr<AdmissionPolicy> make(const Bouncer& config, const Scope& scope);

}  // namespace spillway::gateway
