#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// When a request counts as a success.
enum class Success : std::uint8_t { completed, first_token_in_time };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Success> {
  static constexpr std::array<std::string_view, 2> names{"completed", "first_token_in_time"};
};

namespace spillway::gateway {

/// Rejects more requests the fewer succeed.
struct EnvoyAdmission {
  Success success = Success::completed;
  double window_s = 30;
  double success_threshold = 0.95;
  double aggression = 1;
  double rps_threshold = 0;
  double max_rejection_probability = 0.8;

  static constexpr std::string_view kind = "envoy_admission", type_name = "EnvoyAdmission";
  static constexpr std::string_view doc =
      "Rejects with probability ((n − s)/(n + 1))^(1/aggression), where n requests have ended in "
      "the window and s is the number of successes among them ÷ success_threshold (Envoy's "
      "admission control, after the client throttling of Google SRE). Requests that admission has "
      "rejected do not count.";
  static void fields(auto field) {
    using Self = EnvoyAdmission;
    field("success", &Self::success,
          "completed: a request that delivers all tokens, known at its end; first_token_in_time: a "
          "request with its first token within target_ttft_s of its class, known at the first "
          "token.");
    field("window_s", &Self::window_s, "Age up to which ended requests count.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(1, 120);
    field("success_threshold", &Self::success_threshold,
          "Share of successes below which requests are rejected.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.5, 1)
        .runtime();
    field("aggression", &Self::aggression,
          "1: the probability grows linearly as the success rate falls; larger: faster at first.")
        .dimensionless()
        .range(sim::between(1, 1000))
        .search(1, 4)
        .runtime();
    field("rps_threshold", &Self::rps_threshold,
          "Rate of ended requests in the window below which nothing is rejected.")
        .unit("requests/s")
        .range(sim::at_least(0))
        .runtime();
    field("max_rejection_probability", &Self::max_rejection_probability,
          "Maximum rejection probability; the remaining requests probe for recovery.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 1)
        .runtime();
  }
  bool draws() const { return max_rejection_probability > 0; }
  static constexpr bool observes = true;
  static constexpr std::array reasons{
      workload::Reason{"envoy_admission", workload::categories::kSaturated,
                       "random rejection, more likely the fewer requests have succeeded"}};
};

std::unique_ptr<AdmissionPolicy> make(const EnvoyAdmission& config, const Scope& scope);

}  // namespace spillway::gateway
