#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::router {

class RoutingPolicy;

/// The source of which blocks of a prompt a rank holds.
enum class Overlap : std::uint8_t { kv_events, sent };
/// In what prompts to be computed are counted.
enum class PrefillUnit : std::uint8_t { blocks, tokens };
/// How prefill and decode load are combined into a cost.
enum class CostRule : std::uint8_t { sum, product };

/// The rank with the lowest cost of the request, by the blocks to compute and to hold.
struct KvCost {
  Overlap overlap = Overlap::kv_events;
  CostRule rule = CostRule::sum;
  double overlap_credit = 1;
  double overlap_decay = 0;
  double prefill_load_scale = 1;
  double request_weight = 0;
  double temperature = 0;
  PrefillUnit prefill_unit = PrefillUnit::blocks;
  bool track_prefill = true;
  double overlap_refresh_after_s = 0;
  double host_cache_hit_weight = 0.75;
  double disk_cache_hit_weight = 0.25;

  static constexpr std::string_view kind = "kv_cost", type_name = "KvCost";
  static constexpr std::string_view doc =
      "The KV router of NVIDIA Dynamo (1.3), which chooses an instance and one of its "
      "data-parallel ranks. The cost of a rank is prefill_load_scale × the prompt blocks that it "
      "has yet to compute, including those of this request that it does not hold, + the prompt "
      "blocks of its requests in flight, including this one's, + request_weight × their number. "
      "Load counts the requests that this gateway sent; a block has "
      "prefix_index.block_size_tokens, which should equal that of the instances.";
  static void fields(auto field) {
    field("overlap", &KvCost::overlap,
          "Source of which blocks a rank holds. kv_events: events of the instances, which arrive "
          "without delay; sent: the gateway's own record of what it sent.");
    field(
        "rule", &KvCost::rule,
        "sum: prefill + decode blocks; product: prefill × (decode + 1) (Dynamo's lmetric policy).");
    field("overlap_credit", &KvCost::overlap_credit,
          "Credit for a block that does not need to be computed.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0, 2)
        .runtime();
    field("overlap_decay", &KvCost::overlap_decay,
          "Decay of the credit with the excess of a rank's prefill load over the least loaded "
          "rank's, relative to the request: credit ÷ (1 + decay × excess ÷ request).")
        .dimensionless()
        .range(sim::between(0, 1000))
        .runtime();
    field("prefill_load_scale", &KvCost::prefill_load_scale, "Weight of the blocks to be computed.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0, 4)
        .runtime();
    field("request_weight", &KvCost::request_weight,
          "Number of blocks for which each request in flight counts.")
        .unit("blocks")
        .range(sim::between(0, 1e9))
        .runtime();
    field("temperature", &KvCost::temperature,
          "0: the smallest cost, ties at random; otherwise a draw by softmax over the costs, "
          "scaled to [0, 1].")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0, 1);
    field("prefill_unit", &KvCost::prefill_unit,
          "In what prompts to be computed are counted. blocks: whole ones; tokens: a block that a "
          "prompt does not fill counts for the share that it fills (Dynamo 1.6).");
    field("track_prefill", &KvCost::track_prefill,
          "Whether prompts to be computed count. If not, as where others compute them (Dynamo's "
          "router_track_prefill_tokens), the cost by either rule is that of decoding, less the "
          "undecayed credit for the prompt blocks that the rank holds, at least 0; a credit of 0 "
          "takes the blocks of other tiers out, too.");
    field("overlap_refresh_after_s", &KvCost::overlap_refresh_after_s,
          "Time in the gateway's queue beyond which the blocks that a rank holds are looked up "
          "again at the decision; until then they are those of when the request joined the queue "
          "(Dynamo's DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS).")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("host_cache_hit_weight", &KvCost::host_cache_hit_weight,
          "Blocks in KV memory, without credit or decay, that a block of the prompt in the memory "
          "of the host is worth where events report it (Dynamo 1.3 on). Simulated instances have "
          "no such tier, so that it changes no run; tests script it.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .runtime();
    field("disk_cache_hit_weight", &KvCost::disk_cache_hit_weight, "The same of a block on disk.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .runtime();
  }
  /// Ties are broken at random at any temperature.
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
struct spillway::sim::EnumNames<spillway::router::PrefillUnit> {
  static constexpr std::array<std::string_view, 2> names{"blocks", "tokens"};
};
template <>
struct spillway::sim::EnumNames<spillway::router::CostRule> {
  static constexpr std::array<std::string_view, 2> names{"sum", "product"};
};
