#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/randomness.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::workload {

/// Why an attempt failed, as its client sees it.
enum class Cause : std::uint8_t {
  rate_limited,
  saturated,
  queue_full,
  ttl_expired,
  timeout,
  instance_lost,
  gateway_lost
};

/// How the wait before a retry is randomized.
enum class Jitter : std::uint8_t { none, full, equal, additive };

/// When a client retries.
struct Retry {
  std::vector<Cause> on;
  std::int64_t max_attempts = 3;
  double backoff_s = 1;
  double multiplier = 2;
  double max_backoff_s = 60;
  Jitter jitter = Jitter::full;
  bool obeys_retry_after = false;
  std::optional<double> budget_ratio;
  double budget_burst = 10;
  std::optional<double> active_share;
  std::int64_t min_concurrent_retries = 3;

  static constexpr std::string_view type_name = "Retry";
  static constexpr std::string_view doc =
      "When a client retries, with exponential backoff. A request that can never be served is not "
      "retried.";
  static void fields(auto field) {
    field("on", &Retry::on,
          "Causes after which this rule applies: rate_limited, saturated, queue_full and "
          "ttl_expired are the categories of rejections in result.requests; timeout is the "
          "client's own; instance_lost: a server failed; gateway_lost: the gateway did. Empty: all "
          "of them.");
    field("max_attempts", &Retry::max_attempts, "Maximum number of attempts, including the first.")
        .unit("attempts")
        .range(sim::between(1, 1000));
    field("backoff_s", &Retry::backoff_s, "Wait before the second attempt.")
        .unit("s")
        .range(sim::between(0, 1e6))
        .log_search(0.05, 30);
    field("multiplier", &Retry::multiplier, "Factor by which the wait grows per attempt.")
        .dimensionless()
        .range(sim::between(1, 100))
        .search(1, 4);
    field("max_backoff_s", &Retry::max_backoff_s, "Maximum wait.")
        .unit("s")
        .range(sim::between(0, 1e6));
    field("jitter", &Retry::jitter,
          "Randomization of a wait w. none: w; full: uniform from 0 to w; equal: uniform from w/2 "
          "to w; additive: uniform from w to w + backoff_s.");
    field("obeys_retry_after", &Retry::obeys_retry_after,
          "Whether the wait is the Retry-After of the answer, if it states one, instead of the "
          "backoff.");
    field("budget_ratio", &Retry::budget_ratio,
          "Amount that each first attempt adds to the tenant's retry budget. A retry takes 1 and "
          "is only sent if the budget allows it. Unset: no budget.")
        .dimensionless()
        .range(sim::between(0, 100))
        .search(0, 0.5);
    field("budget_burst", &Retry::budget_burst,
          "Initial and maximum amount of the budget, if there is one.")
        .unit("attempts")
        .range(sim::between(1, 1e9));
    field("active_share", &Retry::active_share,
          "Retries that wait or are under way, of all clients that share the reaction, as a share "
          "of their attempts under way: a retry that would exceed it is not sent (Envoy's "
          "retry_budget, whose default is 0.2). Unset: no such limit.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.05, 0.5);
    field("min_concurrent_retries", &Retry::min_concurrent_retries,
          "That many may wait or be under way in any case, with active_share (Envoy's "
          "min_retry_concurrency).")
        .unit("attempts")
        .range(sim::between(0, 1e9))
        .log_search(1, 100);
  }
  bool applies_to(Cause cause) const;
  /// Wait between attempt number `attempts`, counted from 1, and the next; `uniform` is drawn from
  /// [0, 1).
  double wait_s(std::int64_t attempts, double uniform) const;
  bool draws() const { return max_attempts > 1 && wait_s(1, 0) != wait_s(1, 0.5); }
};

/// When a client sends a second copy of a request.
struct Hedge {
  double after_s = 1;
  std::optional<double> budget_ratio;
  double budget_burst = 10;

  static constexpr std::string_view type_name = "Hedge";
  static constexpr std::string_view doc =
      "When a client sends a second copy of a request: a hedged request (Dean & Barroso, \"The "
      "Tail "
      "at Scale\", CACM 2013; gRPC's hedging policy, with two attempts). The copy passes the "
      "gateway as another attempt, and each copy is sent to another instance than the other one. "
      "The first one with a first token answers, and the client withdraws the other. A copy that "
      "is refused or lost leaves the request to the other copy.";
  static void fields(auto field) {
    field("after_s", &Hedge::after_s,
          "Time from the arrival of the request at the gateway after which its client sends the "
          "copy, unless there is a first token. Dean & Barroso take the 95th percentile of what "
          "is expected.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s))
        .log_search(0.05, 30);
    field("budget_ratio", &Hedge::budget_ratio,
          "Amount that each request adds to the tenant's budget of copies. A copy takes 1 and is "
          "only sent if the budget allows it. Unset: no budget.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 0.2);
    field("budget_burst", &Hedge::budget_burst,
          "Initial and maximum amount of the budget, if there is one.")
        .unit("copies")
        .range(sim::between(1, 1e9));
  }
};

/// How long clients wait, when they retry and when they hedge. Optional per tenant.
struct Reaction {
  std::optional<double> timeout_s;
  std::optional<double> first_token_timeout_s;
  std::optional<double> deadline_s;
  std::vector<Retry> retries;
  std::optional<Hedge> hedge;

  static constexpr std::string_view type_name = "Reaction";
  static constexpr std::string_view doc =
      "How long clients wait, when they retry and when they hedge. A withdrawn request leaves a "
      "queue immediately, and an instance at the end of the current step.";
  static void fields(auto field) {
    const auto span = sim::positive_up_to(sim::kLongestSpan_s);
    field("timeout_s", &Reaction::timeout_s,
          "Time after which an incomplete attempt is withdrawn; unset: never.")
        .unit("s")
        .range(span)
        .log_search(1, 600);
    field("first_token_timeout_s", &Reaction::first_token_timeout_s,
          "Time after which an attempt without a first token is withdrawn; unset: never.")
        .unit("s")
        .range(span)
        .log_search(0.5, 60);
    field("deadline_s", &Reaction::deadline_s,
          "Time from the first attempt after which the current attempt is withdrawn and no retry "
          "follows; unset: none.")
        .unit("s")
        .range(span)
        .log_search(1, 600);
    field("retries", &Reaction::retries,
          "When clients retry; the first rule that applies to the cause decides.");
    field("hedge", &Reaction::hedge,
          "When clients send a second copy of a request; unset: never. Needs empty retries, as in "
          "gRPC, where a method has one of both policies.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  static constexpr std::array reasons{
      Reason{"client_timeout",
             categories::kTimeout,
             "the client withdrew the request after waiting too long",
             {"reaction.timeout_s", "reaction.first_token_timeout_s", "reaction.deadline_s",
              "tenants[].reaction.timeout_s", "tenants[].reaction.first_token_timeout_s",
              "tenants[].reaction.deadline_s"}}};

  bool draws() const { return sim::can_draw(retries); }
  bool limits_concurrency() const {
    return std::ranges::any_of(retries,
                               [](const Retry& retry) { return retry.active_share.has_value(); });
  }
  bool obeys_retry_after() const {
    return std::ranges::any_of(retries, [](const Retry& retry) { return retry.obeys_retry_after; });
  }
  bool is_passive() const {
    return !timeout_s && !first_token_timeout_s && !deadline_s && retries.empty() && !hedge;
  }
};

}  // namespace spillway::workload

template <>
struct spillway::sim::EnumNames<spillway::workload::Cause> {
  static constexpr std::array<std::string_view, 7> names{
      "rate_limited", "saturated",     "queue_full",  "ttl_expired",
      "timeout",      "instance_lost", "gateway_lost"};
};
template <>
struct spillway::sim::EnumNames<spillway::workload::Jitter> {
  static constexpr std::array<std::string_view, 4> names{"none", "full", "equal", "additive"};
};
