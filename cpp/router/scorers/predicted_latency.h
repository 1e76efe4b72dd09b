#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/needs.h"
#include "sim/schema/enum.h"

namespace spillway::router {

class Scorer;

/// Which of the instances that meet the targets is the best.
enum class HeadroomStrategy : std::uint8_t { least, most };

/// The distance of predicted latencies from their targets.
struct PredictedLatency {
  double weight = 1;
  double ttft_weight = 0.8;
  double tpot_weight = 0.2;
  HeadroomStrategy strategy = HeadroomStrategy::least;
  double kv_weight = 1;
  double queue_weight = 1;
  double prefix_weight = 1;

  static constexpr std::string_view kind = "predicted_latency", type_name = "PredictedLatency";
  static constexpr std::string_view doc =
      "By the distance of predicted latencies from the targets of the request's class, scaled "
      "between the smallest and the largest: among the instances that meet both; if none does, "
      "among those without requests; otherwise among those that miss one. The others get 0. "
      "Without "
      "any prediction: the weighted mean of free KV memory, short queue and cached prefix (llm-d's "
      "latency-scorer). Predictions are linear fits to the gateway's own measurements: the time to "
      "the first token over uncached prompt tokens, queue, batch and KV use, the time per token "
      "over "
      "batch and KV use. A class without a target has a target of 0.";
  static void fields(auto field) {
    add_weight<PredictedLatency>(field);
    const auto add = [&](const char* name, double PredictedLatency::* member, const char* doc) {
      field(name, member, doc).dimensionless().range(sim::between(0, 1e9));
    };
    add("ttft_weight", &PredictedLatency::ttft_weight, "Weight of the time to the first token.");
    add("tpot_weight", &PredictedLatency::tpot_weight, "Weight of the time per output token.");
    field("strategy", &PredictedLatency::strategy,
          "Which of the instances that meet the targets is the best. least: the one nearest to "
          "them, which packs requests; most: the one furthest from them.");
    add("kv_weight", &PredictedLatency::kv_weight,
        "Weight of free KV memory, as long as nothing is predicted.");
    add("queue_weight", &PredictedLatency::queue_weight,
        "Weight of a short queue, as long as nothing is predicted.");
    add("prefix_weight", &PredictedLatency::prefix_weight,
        "Weight of the share of the prompt that was sent there before, as long as nothing is "
        "predicted.");
  }
  static constexpr signals::Needs needs{
      .prefix_index = true, .first_tokens = true, .predictions = true};
};

std::unique_ptr<Scorer> make(const PredictedLatency& config);

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::HeadroomStrategy> {
  static constexpr std::array<std::string_view, 2> names{"least", "most"};
};
