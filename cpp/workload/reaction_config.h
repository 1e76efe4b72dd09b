#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/randomness.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::workload {

/// Why an attempt failed, as its client sees it.
enum class Cause : std::uint8_t { rate_limited, saturated, queue_full, ttl_expired, timeout };

/// How the wait before a retry is spread.
enum class Jitter : std::uint8_t { none, full, equal, additive };

/// When a client asks again.
struct Retry {
  std::vector<Cause> on;
  std::int64_t max_attempts = 3;
  double backoff_s = 1;
  double multiplier = 2;
  double max_backoff_s = 60;
  Jitter jitter = Jitter::full;
  std::optional<double> budget_ratio;
  double budget_burst = 10;

  static constexpr std::string_view type_name = "Retry";
  static constexpr std::string_view doc =
      "When a client asks again, with exponential back-off. A request that could never be served "
      "is not asked again.";
  static void fields(auto field) {
    field("on", &Retry::on,
          "Causes after which this rule applies: rate_limited, saturated, queue_full and "
          "ttl_expired are refusals in the vocabulary of result.requests, timeout is the "
          "client's own; empty: any of them.");
    field("max_attempts", &Retry::max_attempts, "Attempts in all, the first included.")
        .unit("attempts")
        .range(sim::between(1, 1000));
    field("backoff_s", &Retry::backoff_s, "Wait before the second attempt.")
        .unit("s")
        .range(sim::between(0, 1e6))
        .log_search(0.05, 30);
    field("multiplier", &Retry::multiplier, "By which the wait grows from attempt to attempt.")
        .dimensionless()
        .range(sim::between(1, 100))
        .search(1, 4);
    field("max_backoff_s", &Retry::max_backoff_s, "The longest wait.")
        .unit("s")
        .range(sim::between(0, 1e6));
    field("jitter", &Retry::jitter,
          "Of a wait w: none is w itself, full uniform from 0 to w, equal uniform from w/2 to w, "
          "additive uniform from w to w + backoff_s.");
    field("budget_ratio", &Retry::budget_ratio,
          "A tenant's clients retry only while a budget lasts: each first attempt adds so much "
          "to it, each retry takes 1; absent: no budget.")
        .dimensionless()
        .range(sim::between(0, 100))
        .search(0, 0.5);
    field("budget_burst", &Retry::budget_burst,
          "What the budget starts with and holds at most, where there is one.")
        .unit("attempts")
        .range(sim::between(1, 1e9));
  }
  bool applies_to(Cause cause) const;
  /// Between the attempt of that number, from 1, and the next; `uniform` is drawn from [0, 1).
  double wait_s(std::int64_t attempts, double uniform) const;
  bool draws() const { return max_attempts > 1 && wait_s(1, 0) != wait_s(1, 0.5); }
};

/// What clients do while they wait and when they fail. Tenants may have their own.
struct Reaction {
  std::optional<double> timeout_s;
  std::optional<double> first_token_timeout_s;
  std::optional<double> deadline_s;
  std::vector<Retry> retries;

  static constexpr std::string_view type_name = "Reaction";
  static constexpr std::string_view doc =
      "How long clients wait and when they ask again. A request that is withdrawn leaves its queue "
      "at once, and an instance at the end of the step under way.";
  static void fields(auto field) {
    const auto span = sim::positive_up_to(sim::kLongestSpan_s);
    field("timeout_s", &Reaction::timeout_s,
          "An attempt that is not complete after so long is withdrawn; absent: never.")
        .unit("s")
        .range(span)
        .log_search(1, 600);
    field("first_token_timeout_s", &Reaction::first_token_timeout_s,
          "An attempt whose first token has not come after so long is withdrawn; absent: never.")
        .unit("s")
        .range(span)
        .log_search(0.5, 60);
    field("deadline_s", &Reaction::deadline_s,
          "Of all attempts together, from the first one: what is under way then is withdrawn, "
          "and nothing is asked again; absent: none.")
        .unit("s")
        .range(span)
        .log_search(1, 600);
    field("retries", &Reaction::retries,
          "When clients ask again; the first rule that applies to the cause decides.");
  }
  static constexpr std::array reasons{
      Reason{"client_timeout",
             categories::kTimeout,
             "the client withdrew the request: it had waited too long",
             {"reaction.timeout_s", "reaction.first_token_timeout_s", "reaction.deadline_s",
              "tenants[].reaction.timeout_s", "tenants[].reaction.first_token_timeout_s",
              "tenants[].reaction.deadline_s"}}};

  bool draws() const { return sim::can_draw(retries); }
  bool is_passive() const {
    return !timeout_s && !first_token_timeout_s && !deadline_s && retries.empty();
  }
};

}  // namespace spillway::workload

template <>
struct spillway::sim::EnumNames<spillway::workload::Cause> {
  static constexpr std::array<std::string_view, 5> names{"rate_limited", "saturated", "queue_full",
                                                         "ttl_expired", "timeout"};
};
template <>
struct spillway::sim::EnumNames<spillway::workload::Jitter> {
  static constexpr std::array<std::string_view, 4> names{"none", "full", "equal", "additive"};
};
