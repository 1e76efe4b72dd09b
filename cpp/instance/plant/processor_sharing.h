#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "instance/plant/plant.h"
#include "sim/error.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::instance {

/// All requests inside progress at the same rate, which depends on their number.
///
/// The default figures were read from the published runs of two g6.2xlarge workers (one L4 each,
/// Qwen2.5-7B-Instruct, 512 input and 128 output tokens), taken as one instance.
struct ProcessorSharing {
  std::vector<double> concurrency{0, 8, 16, 32, 64, 128, 160, 200, 256, 400};
  std::vector<double> e2e_s{7.6, 8.3, 8.7, 10.5, 14.4, 21.8, 27, 34, 46, 75};
  std::vector<double> ttft_s{0.2, 0.3, 0.35, 0.5, 0.7, 1, 1.6, 6, 16, 45};
  std::optional<std::int64_t> reference_output_tokens;

  static constexpr std::string_view kind = "processor_sharing", type_name = "ProcessorSharing";
  static constexpr std::string_view doc =
      "A server that is known only by measured figures: with n requests inside, each progresses at "
      "the rate 1/e2e_s(n), and the first token of a request that enters as the n-th comes "
      "ttft_s(n) later. Figures are interpolated linearly and constant beyond the ends of the "
      "table, which should therefore cover the concurrency of the run. The defaults describe two "
      "L4 workers with a 7B model as one instance.";
  static void fields(auto field) {
    using P = ProcessorSharing;
    // No duration is below the resolution of the clock.
    const auto spans = sim::between(1e-9, sim::kLongestSpan_s);
    field("concurrency", &P::concurrency,
          "Numbers of requests inside to which the figures belong, ascending.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("e2e_s", &P::e2e_s,
          "For each concurrency, the time from entry to the last token of a request.")
        .unit("s")
        .range(spans);
    field("ttft_s", &P::ttft_s,
          "For each concurrency, the time from entry to the first token; a request that completes "
          "earlier gets its first token with its last.")
        .unit("s")
        .range(spans);
    field("reference_output_tokens", &P::reference_output_tokens,
          "Output tokens of the measured requests: other requests take proportionally to theirs. "
          "Unset: all requests take the same.")
        .unit("tokens")
        .range(sim::between(1, 1e9));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<Instance> make(const ProcessorSharing& config, const InstanceGroup& group,
                               sim::InstanceId id, signals::SignalSource* reporter,
                               const Environment& environment, std::vector<Engine*>& engines);

}  // namespace spillway::instance
