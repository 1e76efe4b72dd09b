#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gateway/fairness/cost.h"

namespace spillway::gateway {

class FairnessPolicy;

/// Serves the tenant with the least service per weight on a virtual clock. Sources: Goyal, Vin &
/// Cheng, "Start-time fair queueing" (SIGCOMM'96); with several requests in flight, SFQ(D) of Jin,
/// Chase & Kaur, "Interposed proportional sharing for a storage service utility" (SIGMETRICS'04),
/// where D is the concurrency limit.
struct StartTimeFair {
  Cost cost;

  static constexpr std::string_view kind = "start_time_fair", type_name = "StartTimeFair";
  static constexpr std::string_view doc =
      "Start-time fair queueing: the tenant with the smallest start tag goes next; its tag "
      "advances by cost / weight with each request. The virtual clock is the tag of the last "
      "dispatch. A tenant that was idle starts from the clock; if all queues were empty, from the "
      "largest tag.";
  static void fields(auto field) {
    field("cost", &StartTimeFair::cost, "Cost that advances a tenant's tag, and when.");
  }
};

std::unique_ptr<FairnessPolicy> make(const StartTimeFair& config, std::span<const double> weights);

}  // namespace spillway::gateway
