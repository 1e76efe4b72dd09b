#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
/// On which instance.
enum class PricedInstance : std::uint8_t { best, routed };
/// Whose requests precede a newcomer in an instance.
enum class WorkAhead : std::uint8_t { same_or_higher, all };

/// How long the first tokens of a class may take.
struct TtftBudget {
  std::string slo_class = "standard";
  double budget_s = 0.5;

  static constexpr std::string_view type_name = "TtftBudget";
  static constexpr std::string_view doc = "How long the first tokens of a class may take.";
  static void fields(auto field) {
    field("slo_class", &TtftBudget::slo_class, "Name of the class.");
    field("budget_s", &TtftBudget::budget_s,
          "Longest time from arrival to the first token that is predicted.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.02, 2);
  }
};

/// What is added to every estimate so that it holds for a given share of the requests.
struct TtftMargin {
  std::optional<double> quantile;
  double step_s = 0.001;

  static constexpr std::string_view type_name = "TtftMargin";
  static constexpr std::string_view doc =
      "What is added to every estimate, learnt from first tokens: it rises by step_s × quantile "
      "after a request that took longer than was predicted and falls by step_s × (1 − quantile) "
      "after any other, so that in the long run that share keeps within estimate and margin. It "
      "starts at 0 and may be negative.";
  static void fields(auto field) {
    field("quantile", &TtftMargin::quantile,
          "Share of the unprotected admitted requests that shall keep within estimate and "
          "margin; absent: nothing is added.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.5, 0.99);
    field("step_s", &TtftMargin::step_s, "Size of a correction.")
        .unit("s")
        .range(sim::positive_up_to(10))
        .log_search(1e-4, 0.1);
  }
};

/// How the coefficients follow what is observed.
struct TtftCalibration {
  std::optional<double> forgetting;
  double initial_variance = 0.01;
  double largest_trace = 1e6;
  double outlier_sigmas = 4;

  static constexpr std::string_view type_name = "TtftCalibration";
  static constexpr std::string_view doc =
      "Recursive least squares with forgetting on first tokens: the time from dispatch to first "
      "token against 1, the request's uncached tokens, those of requests ahead of it (both in "
      "thousands) and decoding requests (in hundreds), at its admission. The fit starts from the "
      "coefficients as set and takes the place of the estimator's formula. It learns from requests "
      "that were sent to the instance they were priced on; those without a first token teach "
      "nothing.";
  static void fields(auto field) {
    field("forgetting", &TtftCalibration::forgetting,
          "Weight of a first token relative to the next; absent: coefficients stay as set.")
        .dimensionless()
        .range(sim::between(0.5, 1))
        .search(0.95, 0.999);
    field("initial_variance", &TtftCalibration::initial_variance,
          "Of the coefficients as set, relative to that of an observation: how soon they give "
          "way.")
        .dimensionless()
        .range(sim::positive_up_to(1e12))
        .log_search(1e-3, 1e3);
    field("largest_trace", &TtftCalibration::largest_trace,
          "Trace of the covariance beyond which nothing is forgotten, because observations are "
          "too much alike.")
        .dimensionless()
        .range(sim::positive_up_to(1e18));
    field("outlier_sigmas", &TtftCalibration::outlier_sigmas,
          "Observations further off than so many deviations are left out.")
        .dimensionless()
        .range(sim::positive_up_to(1e6));
  }
};

/// Protection of requests that nothing is cached for.
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
      "Protection of requests that nothing is cached for, which estimates put at a disadvantage. A "
      "prefix group is the requests whose prompts begin with the same shared segment.";
  static void fields(auto field) {
    field("floor_per_s", &ColdStart::floor_per_s,
          "A floor: so many requests per second of each prefix group are admitted whatever is "
          "predicted for them, by a token bucket; absent: no floor.")
        .unit("requests/s")
        .range(sim::positive_up_to(1e6))
        .log_search(0.05, 0.5);
    field("floor_burst", &ColdStart::floor_burst,
          "The most of them at once: the bucket's capacity.")
        .unit("requests")
        .range(sim::between(1, 1e6));
    field("bonus_requests", &ColdStart::bonus_requests,
          "A bonus: a prefix group is always admitted until so many of its requests have been.")
        .unit("requests")
        .range(sim::between(0, 1e6))
        .search(0, 16);
    field("group_memory_s", &ColdStart::group_memory_s,
          "A prefix group of which nothing was admitted for so long is new again.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("warming_share", &ColdStart::warming_share,
          "Warming slots: this share of every budget is reserved for requests with a match "
          "below warming_match; the others must keep within the rest.")
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
          "Floor and bonus together admit at most this share of all that is admitted, and one: "
          "whoever asks chooses the prefix groups.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.02, 0.5);
  }
};

/// Admits a request if its first token is predicted within the budget of its class.
struct PredictiveTtft {
  TtftEstimator estimator = TtftEstimator::queue_depth;
  PricedInstance instance = PricedInstance::best;
  std::vector<TtftBudget> budgets{{"critical", 0.2}, {"standard", 0.5}, {"sheddable", 0.3}};
  double headroom = 1;
  std::optional<std::int64_t> protected_priority = 4;
  double avg_step_s = 0.007;
  double beta0_us = 6910.42;
  double beta_prefill_us = 17.67;
  double beta_decode_us = 2.84;
  WorkAhead ahead = WorkAhead::same_or_higher;
  bool corrects_staleness = true;
  TtftMargin margin;
  TtftCalibration calibration;
  double exploration = 0;
  ColdStart cold_start;

  static constexpr std::string_view kind = "predictive_ttft", type_name = "PredictiveTtft";
  static constexpr std::string_view doc =
      "Admits a request if its first token is predicted within budget_s × headroom of its arrival, "
      "on one instance: see instance. The prediction adds beta0_us + beta_prefill_us per token of "
      "the prompt that was not sent to that instance before, to the wait for the requests ahead: "
      "see estimator.";
  static void fields(auto field) {
    using P = PredictiveTtft;
    const auto coefficient = sim::between(0, 1e9);
    field("estimator", &P::estimator,
          "What the wait is made of. queue_depth: avg_step_s for each request that the instance "
          "reports as waiting; priority_aware: avg_step_s for each request ahead, by the "
          "gateway's own count, and what is left of the step under way; token_backlog: the steps "
          "that their uncached tokens and the request's own fill, each with its decodes, and "
          "what is left of the one under way; seats_and_memory: the same, and the time until "
          "enough requests have left where seats or KV memory are used up. exact: what the "
          "instance would take if the request were sent at once and no other followed, by "
          "running a copy of its engine ahead (slow), as no gateway can. It is no bound for the "
          "others: the instance priced may not be the one that the request is sent to, and what "
          "the request costs those behind it does not count.");
    field("instance", &P::instance,
          "Which instance is priced. best: the one with the lowest estimate, whichever the "
          "router chooses (the published rule); routed: the one that the router would choose for "
          "the request at its admission, with the same draws. While the request waits in the "
          "gateway, others may still change that choice.");
    field("budgets", &P::budgets,
          "Budgets of classes; the others have their target_ttft_s, or are always admitted.");
    field("headroom", &P::headroom, "Multiplies every budget.")
        .dimensionless()
        .range(sim::positive_up_to(1000))
        .search(0.5, 3);
    field("protected_priority", &P::protected_priority,
          "Classes of at least this priority are always admitted; absent: none is.")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("avg_step_s", &P::avg_step_s,
          "What each request ahead costs, in queue_depth and priority_aware.")
        .unit("s")
        .range(sim::between(0, 100))
        .search(0.005, 0.02);
    field("beta0_us", &P::beta0_us, "Duration of an empty step.").unit("us").range(coefficient);
    field("beta_prefill_us", &P::beta_prefill_us, "Added per prompt token computed.")
        .unit("us/token")
        .range(coefficient);
    field("beta_decode_us", &P::beta_decode_us,
          "Added to a step per decoding request, in token_backlog and seats_and_memory.")
        .unit("us/request")
        .range(coefficient);
    field("ahead", &P::ahead,
          "Whose requests are ahead, except in queue_depth: same_or_higher, of at least its "
          "class's priority, as in an engine that serves by priority; all, as in one that serves "
          "in order of arrival.");
    field("corrects_staleness", &P::corrects_staleness,
          "Whether queue_depth adds the requests that await their first token and were sent "
          "after the instance's report, and those still queued in the gateway.");
    field("margin", &P::margin, "What is added to every estimate.");
    field("calibration", &P::calibration, "How the coefficients follow what is observed.");
    field("exploration", &P::exploration,
          "Share of the requests to be rejected that are admitted all the same, so that what is "
          "learnt from is not only what was predicted to be fast.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0, 0.05);
    field("cold_start", &P::cold_start, "Protection of requests that nothing is cached for.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  static constexpr std::array reasons{
      workload::Reason{"predicted_ttft", workload::categories::kSaturated,
                       "the first token was not predicted within the budget"}};
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
  static constexpr std::array former{
      std::pair{std::string_view("oracle"), spillway::gateway::TtftEstimator::exact}};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::PricedInstance> {
  static constexpr std::array<std::string_view, 2> names{"best", "routed"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::WorkAhead> {
  static constexpr std::array<std::string_view, 2> names{"same_or_higher", "all"};
};
