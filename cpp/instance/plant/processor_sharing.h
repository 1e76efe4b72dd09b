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

/// Everybody inside progresses at the same rate, which follows from how many they are.
///
/// The default is a plant whose figures were read off the published runs of two g6.2xlarge workers
/// (one L4 each, Qwen2.5-7B-Instruct, 512 tokens in and 128 out), taken as one instance.
struct ProcessorSharing {
  std::vector<double> concurrency{0, 8, 16, 32, 64, 128, 160, 200, 256, 400};
  std::vector<double> e2e_s{7.6, 8.3, 8.7, 10.5, 14.4, 21.8, 27, 34, 46, 75};
  std::vector<double> ttft_s{0.2, 0.3, 0.35, 0.5, 0.7, 1, 1.6, 6, 16, 45};
  std::optional<std::int64_t> reference_output_tokens;

  static constexpr std::string_view kind = "processor_sharing", type_name = "ProcessorSharing";
  static constexpr std::string_view doc =
      "A server that is known by measured figures only: with n requests inside, each progresses at "
      "the rate 1/e2e_s(n), and the first token of one that enters as the n-th comes ttft_s(n) "
      "later. Figures are interpolated linearly, and constant beyond the ends of the table, so "
      "let it reach as far as the requests inside do. The defaults are two L4 workers with a 7B "
      "model as one instance.";
  static void fields(auto field) {
    using P = ProcessorSharing;
    // Nothing lasts less than the clock can tell.
    const auto spans = sim::between(1e-9, sim::kLongestSpan_s);
    field("concurrency", &P::concurrency, "Requests inside for which there are figures, ascending.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("e2e_s", &P::e2e_s,
          "For each concurrency, how long a request takes from entry to last token while so "
          "many are inside.")
        .unit("s")
        .range(spans);
    field("ttft_s", &P::ttft_s,
          "For each concurrency, how long the first token takes from entry; a request that is "
          "done by then has it with its last one.")
        .unit("s")
        .range(spans);
    field("reference_output_tokens", &P::reference_output_tokens,
          "Output tokens of the requests that the figures are about: others take in proportion "
          "to theirs. None: every request takes the same.")
        .unit("tokens")
        .range(sim::between(1, 1e9));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<Instance> make(const ProcessorSharing& config, const InstanceGroup& group,
                               sim::InstanceId id, signals::SignalSource* reporter,
                               const Environment& environment, std::vector<Engine*>& engines);

}  // namespace spillway::instance
