#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::router {

class RoutingPolicy;

/// Whose word is taken for which blocks of a prompt a rank holds.
enum class Overlap : std::uint8_t { kv_events, sent };
/// How prefill and decode load make a cost.
enum class CostRule : std::uint8_t { sum, product };

/// The rank on which the request costs least, by the blocks it must compute and hold.
struct KvCost {
  Overlap overlap = Overlap::kv_events;
  CostRule rule = CostRule::sum;
  double overlap_credit = 1;
  double overlap_decay = 0;
  double prefill_load_scale = 1;
  double request_weight = 0;
  double temperature = 0;

  static constexpr std::string_view kind = "kv_cost", type_name = "KvCost";
  static constexpr std::string_view doc =
      "The KV router of NVIDIA Dynamo (1.3), which chooses an instance and one of its "
      "data-parallel ranks: the cost of a rank is prefill_load_scale × the "
      "prompt blocks that it has yet to compute, with those of this request that it does not hold, "
      "+ the prompt blocks of its requests in flight, with this one's, + request_weight × their "
      "number. Load counts what this gateway sent; a block has prefix_index.block_size_tokens, "
      "which should be that of the instances.";
  static void fields(auto field) {
    field("overlap", &KvCost::overlap,
          "Whose word is taken for which blocks a rank holds: kv_events of the instances, "
          "which arrive at once, or the gateway's own record of what it sent.");
    field("rule", &KvCost::rule,
          "sum of prefill and decode blocks, or product: prefill × (decode + 1) (Dynamo's "
          "lmetric policy).");
    field("overlap_credit", &KvCost::overlap_credit,
          "Credit for a block that need not be computed.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0, 2);
    field("overlap_decay", &KvCost::overlap_decay,
          "How fast that credit shrinks with the prefill load of a rank beyond the least "
          "loaded one's, relative to the request: credit ÷ (1 + decay × excess ÷ request).")
        .dimensionless()
        .range(sim::between(0, 1000));
    field("prefill_load_scale", &KvCost::prefill_load_scale, "Weight of blocks to be computed.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0, 4);
    field("request_weight", &KvCost::request_weight, "Blocks that a request in flight counts as.")
        .unit("blocks")
        .range(sim::between(0, 1e9));
    field("temperature", &KvCost::temperature,
          "0: the smallest cost, ties at random; else a draw by softmax over the costs, scaled "
          "to [0, 1].")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0, 1);
  }
  /// Equal costs are told apart at random, whatever the temperature.
  static constexpr bool draws() { return true; }
  static constexpr bool rates_ranks = true;
  signals::Needs needs() const {
    return {.prefix_index = overlap == Overlap::sent, .first_tokens = true};
  }
};

std::unique_ptr<RoutingPolicy> make(const KvCost& config, std::int64_t block_size_tokens);

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::Overlap> {
  static constexpr std::array<std::string_view, 2> names{"kv_events", "sent"};
};
template <>
struct spillway::sim::EnumNames<spillway::router::CostRule> {
  static constexpr std::array<std::string_view, 2> names{"sum", "product"};
};
