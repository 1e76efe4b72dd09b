#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// Whether the decode load is the current one or the one at the first token.
enum class DecodeLoad : std::uint8_t { current, predicted };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::DecodeLoad> {
  static constexpr std::array<std::string_view, 2> names{"current", "predicted"};
};

namespace spillway::gateway {

/// Rejects before prefill, so no prefill is wasted on requests that decoding cannot serve.
struct EarlyRejection {
  DecodeLoad decode_load = DecodeLoad::predicted;
  double max_load = 1;
  std::optional<double> decode_s;
  double half_life_samples = 100;

  static constexpr std::string_view kind = "early_rejection", type_name = "EarlyRejection";
  static constexpr std::string_view doc =
      "Rejects while load = max(TTFT ÷ its target, time per token ÷ its target) exceeds max_load "
      "(Mooncake). TTFT is estimated for the instance with the fewest prompt tokens to compute, "
      "time per token for the average number of streams per instance, both by linear fits to the "
      "gateway's own measurements. With prefill and decode pools these are the instances of the "
      "prefill pool and of the decode pool. Targets are those of the request's class. An empty "
      "system admits.";
  static void fields(auto field) {
    field("decode_load", &EarlyRejection::decode_load,
          "current: of the streams running now; predicted: of the streams running at the request's "
          "first token, if every stream lasts decode_s and all earlier requests have started.");
    field("max_load", &EarlyRejection::max_load, "Load up to which requests are admitted.")
        .dimensionless()
        .range(sim::positive_up_to(1000))
        .search(0.5, 2)
        .runtime();
    field("decode_s", &EarlyRejection::decode_s,
          "Time from the first token to the last; unset: the measured average.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.1, 60);
    field("half_life_samples", &EarlyRejection::half_life_samples,
          "Half-life of a measurement, in later measurements.")
        .unit("samples")
        .range(sim::between(1, 1e9))
        .log_search(10, 1000);
  }
  static constexpr bool observes = true;
  static constexpr std::array reasons{
      workload::Reason{"early_rejection", workload::categories::kSaturated,
                       "the load of prefill or decoding would exceed max_load"}};
};

std::unique_ptr<AdmissionPolicy> make(const EarlyRejection& config, const Scope& scope);

}  // namespace spillway::gateway
