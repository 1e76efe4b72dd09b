#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "signals/needs.h"
#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// How the time to first token on an instance is predicted.
enum class TtftEstimator : std::uint8_t {
  queue_depth,
  priority_aware,
  token_backlog,
  seats_and_memory,
  exact
};
/// The instance of the prediction.
enum class PricedInstance : std::uint8_t { best, routed };
/// Which requests precede a newcomer in an instance.
enum class WorkAhead : std::uint8_t { same_or_higher, all };

/// TTFT budget of a class.
struct TtftBudget {
  std::string slo_class = "standard";
  double budget_s = 0.5;

  static constexpr std::string_view type_name = "TtftBudget";
  static constexpr std::string_view doc = "TTFT budget of a class.";
  static void fields(auto field) {
    field("slo_class", &TtftBudget::slo_class, "Name of the class.");
    field("budget_s", &TtftBudget::budget_s,
          "Maximum predicted time from arrival to the first token.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.02, 2)
        .runtime();
  }
};

/// A margin on every estimate such that a given share of the requests keeps within it.
struct TtftMargin {
  std::optional<double> quantile;
  double step_s = 0.001;

  static constexpr std::string_view type_name = "TtftMargin";
  static constexpr std::string_view doc =
      "Margin that is added to every estimate, learned from first tokens: it rises by step_s × "
      "quantile after a request that took longer than predicted and falls by step_s × (1 − "
      "quantile) after any other, so in the long run that share of the requests keeps within "
      "estimate + margin. It starts at 0 and may be negative.";
  static void fields(auto field) {
    field("quantile", &TtftMargin::quantile,
          "Target share of the unprotected admitted requests that keep within estimate + margin; "
          "unset: no margin.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 0.99);
    field("step_s", &TtftMargin::step_s, "Step size of the margin.")
        .unit("s")
        .range(sim::positive_up_to(10))
        .log_search(1e-4, 0.1);
  }
};

/// How the coefficients follow the observations.
struct TtftCalibration {
  std::optional<double> forgetting;
  double initial_variance = 0.01;
  double largest_trace = 100;
  double outlier_sigmas = 4;

  static constexpr std::string_view type_name = "TtftCalibration";
  static constexpr std::string_view doc =
      "Recursive least squares with forgetting on first tokens: the time from dispatch to first "
      "token against 1, the request's uncached tokens, those of requests ahead of it (both in "
      "thousands) and decoding requests (in hundreds), at its admission. The fit starts from the "
      "configured coefficients and replaces the estimator's formula. It learns only from requests "
      "that were sent to the instance of their prediction and got a first token. No coefficient is "
      "negative, and the configured ones keep some weight (see largest_trace): a cost that the "
      "observations say nothing about, such as that of tokens ahead while none ever were, returns "
      "to "
      "its configured value instead of following their noise.";
  static void fields(auto field) {
    field("forgetting", &TtftCalibration::forgetting,
          "Weight of an observation relative to the next one; unset: the coefficients stay as "
          "configured.")
        .dimensionless()
        .range(sim::between(0.5, 1))
        .search(0.95, 0.999);
    field("initial_variance", &TtftCalibration::initial_variance,
          "Variance of the configured coefficients relative to that of an observation; larger "
          "values adapt sooner.")
        .dimensionless()
        .range(sim::positive_up_to(1e12))
        .log_search(1e-3, 1e3);
    field(
        "largest_trace", &TtftCalibration::largest_trace,
        "Bound of the trace of the covariance as observations are forgotten: the configured "
        "coefficients keep the weight of 4 / largest_trace observations each. Larger values follow "
        "few or similar observations further.")
        .dimensionless()
        .range(sim::positive_up_to(1e18));
    field("outlier_sigmas", &TtftCalibration::outlier_sigmas,
          "Observations with an error of more standard deviations are ignored.")
        .dimensionless()
        .range(sim::positive_up_to(1e6));
  }
};

/// Protection of requests without cached prefixes.
struct ColdStart {
  std::optional<double> floor_per_s;
  double floor_burst = 1;
  std::int64_t bonus_requests = 0;
  double group_memory_s = 600;
  double warming_share = 0;
  double warming_match = 0.5;
  double largest_share = 1;

  static constexpr std::string_view type_name = "ColdStart";
  static constexpr std::string_view doc =
      "Protection of requests without cached prefixes, which estimates put at a disadvantage. A "
      "prefix group is the set of requests whose prompts begin with the same shared segment.";
  static void fields(auto field) {
    field("floor_per_s", &ColdStart::floor_per_s,
          "Floor: rate at which requests of each prefix group are admitted regardless of the "
          "prediction, by a token bucket; unset: no floor.")
        .unit("requests/s")
        .range(sim::positive_up_to(1e6))
        .log_search(0.05, 0.5);
    field("floor_burst", &ColdStart::floor_burst, "Capacity of that bucket: the maximum burst.")
        .unit("requests")
        .range(sim::between(1, 1e6));
    field("bonus_requests", &ColdStart::bonus_requests,
          "Bonus: number of requests of a new prefix group that are always admitted.")
        .unit("requests")
        .range(sim::between(0, 1e6))
        .search(0, 16);
    field("group_memory_s", &ColdStart::group_memory_s,
          "Time without admissions after which a prefix group is new again.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("warming_share", &ColdStart::warming_share,
          "Warming slots: share of every budget that is reserved for requests with a match below "
          "warming_match; the others must keep within the rest.")
        .dimensionless()
        .range(sim::between(0, 0.9))
        .search(0, 0.3);
    field("warming_match", &ColdStart::warming_match,
          "Share of the prompt's full blocks, on the instance where it is largest, below which "
          "a request is cold.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.1, 0.9);
    field("largest_share", &ColdStart::largest_share,
          "Maximum share of all admissions that floor and bonus admit together, plus one request: "
          "clients choose the prefix groups, so this bounds abuse.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.02, 0.5);
  }
};

/// Admits a request if its first token is predicted within the budget of its class.
struct PredictiveTtft {
  TtftEstimator estimator = TtftEstimator::queue_depth;
  PricedInstance instance = PricedInstance::best;
  std::vector<TtftBudget> budgets;
  double headroom = 1;
  std::optional<std::int64_t> protected_priority = 4;
  std::optional<double> avg_step_s;
  std::optional<double> beta0_us;
  std::optional<double> beta_prefill_us;
  std::optional<double> beta_decode_us;
  WorkAhead ahead = WorkAhead::same_or_higher;
  bool corrects_staleness = true;
  TtftMargin margin;
  TtftCalibration calibration;
  double exploration = 0;
  ColdStart cold_start;

  static constexpr std::string_view kind = "predictive_ttft", type_name = "PredictiveTtft";
  static constexpr std::string_view doc =
      "Admits a request if its first token is predicted to arrive within budget_s × headroom of "
      "its arrival, on one instance (see instance). The prediction is the wait for the requests "
      "ahead (see estimator), plus beta0_us, plus beta_prefill_us per token of the prompt that was "
      "not sent to that instance before. A policy that learns (margin, calibration) learns from "
      "admitted requests alone, so it admits a probe regardless of the prediction if it has "
      "rejected "
      "20 requests in a row and no admitted one awaits its first token.";
  static void fields(auto field) {
    using P = PredictiveTtft;
    const auto coefficient = sim::between(0, 1e9);
    field("estimator", &P::estimator,
          "Estimate of the wait. queue_depth: avg_step_s for each request that the instance "
          "reports as waiting; priority_aware: avg_step_s for each request ahead, by the gateway's "
          "own count, plus the rest of the current step; token_backlog: the steps filled by their "
          "uncached tokens and the request's own, each with its decodes, plus the rest of the "
          "current step; seats_and_memory: the same, plus the time until enough requests have left "
          "if seats or KV memory are used up; exact: the time that the instance would take if the "
          "request were sent immediately and no other followed, by running a copy of its engine "
          "ahead (slow), which no real gateway can. exact is not an upper bound on the others: the "
          "request may be sent to another instance than the one of the prediction, and its cost to "
          "the requests behind it does not count.");
    field("instance", &P::instance,
          "Instance of the prediction. best: the one with the lowest estimate, whichever the "
          "router chooses (the published rule); routed: the one that the router would choose at "
          "the request's admission, with the same draws. While the request waits in the gateway, "
          "other requests may still change that choice.");
    field(
        "budgets", &P::budgets,
        "Budgets of classes; by default none is stated. Other classes have their target_ttft_s or, "
        "without one, are always admitted.");
    field("headroom", &P::headroom, "Factor on every budget.")
        .dimensionless()
        .range(sim::positive_up_to(1000))
        .search(0.5, 3)
        .runtime();
    field("protected_priority", &P::protected_priority,
          "Classes of at least this priority are always admitted; unset: none.")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("avg_step_s", &P::avg_step_s,
          "Time per request ahead, in queue_depth and priority_aware; unset: beta0_us.")
        .unit("s")
        .range(sim::between(0, 100))
        .search(0.005, 0.02);
    field("beta0_us", &P::beta0_us,
          "Duration of an empty step; unset: that of the fleet's servers, the mean over the "
          "instances, for prompts and contexts of 512 tokens where it is not linear in them.")
        .unit("us")
        .range(coefficient);
    field("beta_prefill_us", &P::beta_prefill_us,
          "Time per computed prompt token; unset: that of the fleet's servers.")
        .unit("us/token")
        .range(coefficient);
    field("beta_decode_us", &P::beta_decode_us,
          "Time per decoding request and step, in token_backlog and seats_and_memory; unset: that "
          "of the fleet's servers.")
        .unit("us/request")
        .range(coefficient);
    field("ahead", &P::ahead,
          "Requests that count as ahead, except in queue_depth. same_or_higher: those of at least "
          "its class's priority, as in an engine that schedules by priority; all: as in an engine "
          "that schedules in order of arrival.");
    field("corrects_staleness", &P::corrects_staleness,
          "Whether queue_depth adds the requests that await their first token and were sent "
          "after the instance's report, and those still queued in the gateway.");
    field("margin", &P::margin, "Margin on every estimate.");
    field("calibration", &P::calibration, "How the coefficients follow the observations.");
    field("exploration", &P::exploration,
          "Share of the requests to be rejected that are admitted instead, so that learning is not "
          "limited to requests that were predicted to be fast.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 0.05);
    field("cold_start", &P::cold_start, "Protection of requests without cached prefixes.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  static constexpr std::array reasons{
      workload::Reason{"predicted_ttft", workload::categories::kSaturated,
                       "the first token was not predicted to arrive within the budget"}};
  static constexpr bool observes = true;
  bool draws() const { return exploration > 0; }
  signals::Needs needs() const {
    return {.prefix_index = true,
            .outstanding = true,
            .next_choice = instance == PricedInstance::routed,
            .exact_estimate = estimator == TtftEstimator::exact};
  }
};

std::unique_ptr<AdmissionPolicy> make(const PredictiveTtft& config, const Scope& scope);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::TtftEstimator> {
  static constexpr std::array<std::string_view, 5> names{
      "queue_depth", "priority_aware", "token_backlog", "seats_and_memory", "exact"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::PricedInstance> {
  static constexpr std::array<std::string_view, 2> names{"best", "routed"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::WorkAhead> {
  static constexpr std::array<std::string_view, 2> names{"same_or_higher", "all"};
};
