#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gateway/fairness/cost.h"

namespace spillway::gateway {

class FairnessPolicy;

/// Who has the least service per weight on a virtual clock. Sources: Goyal, Vin & Cheng,
/// "Start-time fair queueing" (SIGCOMM'96); with several requests in flight, SFQ(D) of Jin, Chase &
/// Kaur, "Interposed proportional sharing for a storage service utility" (SIGMETRICS'04), where D
/// is the concurrency limit.
struct StartTimeFair {
  Cost cost;

  static constexpr std::string_view kind = "start_time_fair", type_name = "StartTimeFair";
  static constexpr std::string_view doc =
      "Start-time fair queueing: the smallest start tag goes next, which advances by cost / weight "
      "with each request. The virtual clock is the tag of the last dispatch; a tenant that was "
      "idle starts from it, and after all queues were empty from the largest tag.";
  static void fields(auto field) {
    field("cost", &StartTimeFair::cost, "What advances a tenant's tag, and when.");
  }
};

std::unique_ptr<FairnessPolicy> make(const StartTimeFair& config, std::span<const double> weights);

}  // namespace spillway::gateway
