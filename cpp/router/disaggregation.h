#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/deciders/policies.h"
#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::router {

/// Which instance of a request with two legs is chosen first.
enum class LegOrder : std::uint8_t { prefill_first, decode_first };
/// When the decode leg is sent.
enum class Handoff : std::uint8_t { after_prefill, at_dispatch };
/// Whether both legs of a request are in one domain.
enum class Topology : std::uint8_t { any, prefer, require };
/// How transfers share a bandwidth.
enum class LinkSharing : std::uint8_t { fixed_share, max_min };

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::LegOrder> {
  static constexpr std::array<std::string_view, 2> names{"prefill_first", "decode_first"};
};
template <>
struct spillway::sim::EnumNames<spillway::router::Handoff> {
  static constexpr std::array<std::string_view, 2> names{"after_prefill", "at_dispatch"};
};
template <>
struct spillway::sim::EnumNames<spillway::router::Topology> {
  static constexpr std::array<std::string_view, 3> names{"any", "prefer", "require"};
};
template <>
struct spillway::sim::EnumNames<spillway::router::LinkSharing> {
  static constexpr std::array<std::string_view, 2> names{"fixed_share", "max_min"};
};

namespace spillway::router {

/// What moves the KV blocks of prompts between the pools.
struct KvLink {
  std::optional<double> bandwidth_gb_per_s = 25;
  std::optional<double> shared_bandwidth_gb_per_s;
  LinkSharing sharing = LinkSharing::fixed_share;
  double base_latency_s = 5e-5;
  std::int64_t max_transfers = 0;

  static constexpr std::string_view type_name = "KvLink";
  static constexpr std::string_view doc =
      "What moves the KV blocks of prompts from every instance of the prefill pool to every one of "
      "the decode pool. A transfer moves the blocks that its reader lacks, and takes at least 1 "
      "ns.";
  static void fields(auto field) {
    field("bandwidth_gb_per_s", &KvLink::bandwidth_gb_per_s,
          "Bandwidth between two instances; unset: unlimited.")
        .unit("GB/s")
        .range(sim::positive_up_to(1e6))
        .log_search(1, 400);
    field("shared_bandwidth_gb_per_s", &KvLink::shared_bandwidth_gb_per_s,
          "Bandwidth of all transfers together; unset: unlimited.")
        .unit("GB/s")
        .range(sim::positive_up_to(1e9));
    field("sharing", &KvLink::sharing,
          "How transfers share a bandwidth. fixed_share: each takes, for all of its time, an equal "
          "part of what those share that are under way when it starts, itself included; max_min: "
          "those that move bytes share it fairly at every instant.");
    field("base_latency_s", &KvLink::base_latency_s,
          "Time of a transfer before its first byte moves.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("max_transfers", &KvLink::max_transfers,
          "Maximum number of transfers under way between two instances; 0: unlimited. Others wait "
          "in order.")
        .unit("transfers")
        .range(sim::between(0, 1e6));
  }
};

/// How requests pass through a prefill and a decode pool.
struct Disaggregation {
  LegOrder order = LegOrder::prefill_first;
  Handoff handoff = Handoff::after_prefill;
  Topology topology = Topology::any;
  AnyDecider decider = AlwaysRemote{};
  KvLink link;
  bool ends_at_first_token = false;
  bool reads_on = false;
  std::int64_t prefill_max_retries = 0;
  double prefill_retry_after_s = 0.2;

  static constexpr std::string_view type_name = "Disaggregation";
  static constexpr std::string_view doc =
      "How requests pass through a prefill and a decode pool: the groups with these roles. Each "
      "pool has its own router with the settings of the simulation's. Without such groups these "
      "settings have no effect.";
  static void fields(auto field) {
    field(
        "order", &Disaggregation::order,
        "Which instance is chosen first. prefill_first, as in Dynamo: the prefill instance at "
        "dispatch, the decode instance when its leg is sent. decode_first, as in llm-d: the decode "
        "instance, and if the decider wants one, the prefill instance, both at dispatch.");
    field("handoff", &Disaggregation::handoff,
          "When the decode leg is sent. after_prefill: when the prompt has been computed; "
          "at_dispatch: first, and the prefill leg follows when the blocks of the decode leg are "
          "taken (Dynamo's bootstrap and push).");
    field(
        "topology", &Disaggregation::topology,
        "Whether the instance that is chosen second has the transfer_domain of the first. any: it "
        "may have another one; prefer: if any instance of its pool that may be chosen has that "
        "domain, it is one of these; require: only these may be chosen. If there is none, the "
        "request is rejected (no_decode_instance), or with order: decode_first served wholly by "
        "its decode instance.");
    field(
        "decider", &Disaggregation::decider,
        "Which requests have their prompts computed in the prefill pool. Others are served by one "
        "instance of the decode pool.");
    field("link", &Disaggregation::link, "What moves the prompts' KV blocks between the pools.");
    field(
        "ends_at_first_token", &Disaggregation::ends_at_first_token,
        "Whether the token of a prefill leg is the answer of a request that gets only one, without "
        "a transfer and a decode leg, as in Dynamo where the model ends with it. Otherwise the "
        "decode leg follows, as in llm-d. It requires handoff: after_prefill.");
    field("reads_on", &Disaggregation::reads_on,
          "Whether a request that its client withdraws goes on, from the queue of its prefill "
          "instance on, until its decode instance has read its prompt, as in Dynamo: it ends then, "
          "so that only then it may be repeated. Otherwise it ends at once, and the blocks of both "
          "sides are free.");
    field("prefill_max_retries", &Disaggregation::prefill_max_retries,
          "How often a prefill leg that its instance refuses because it is down, or loses before "
          "the prompt has been computed, is sent to the same instance again, as by llm-d's sidecar "
          "(prefill-max-retries); then the request fails. It requires order: decode_first and "
          "handoff: after_prefill, and no migration.")
        .unit("retries")
        .range(sim::between(0, 1000));
    field("prefill_retry_after_s", &Disaggregation::prefill_retry_after_s,
          "Time from the loss of a prefill leg until it is sent again; 0.2 s in llm-d. A client "
          "that leaves meanwhile withdraws the request at once.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  /// Requests that get no instance of the decode pool. The prompts of most were computed in vain.
  static constexpr std::array reasons{
      workload::Reason{
          "no_decode_instance",
          workload::categories::kNoCandidate,
          "the prompt was computed, but the router found no instance of the decode pool",
          {"router"}},
      workload::Reason{"decode_overloaded",
                       workload::categories::kSaturated,
                       "an instance of the decode pool was to be chosen while all were busy",
                       {"busy_monitor.active_decode_blocks_threshold",
                        "busy_monitor.active_prefill_tokens_threshold",
                        "busy_monitor.active_prefill_tokens_threshold_frac"}}};
};

}  // namespace spillway::router
