#include "metrics/figures.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace spillway::metrics {

using sim::Value;
using workload::Outcome;

namespace {

constexpr double kNsPerMs = 1e6;

// The window: from warm_up_s to the horizon or the last arrival.
constexpr std::string_view kRequests = "requests that arrived in the window";
constexpr std::string_view kCompleted = "completed requests that arrived in the window";
constexpr std::string_view kPromised =
    "requests that arrived in the window, of classes with latency targets";
constexpr std::string_view kRun = "the whole run";
constexpr std::string_view kDecisions = "logged routing decisions of the whole run";

Value number(std::optional<double> value) { return value ? Value(*value) : Value(); }

std::optional<double> ratio(double numerator, double denominator) {
  if (denominator <= 0) return std::nullopt;
  return numerator / denominator;
}

bool is_reported(const Measured& measured) { return measured.config.uses_reported_latencies(); }

std::int64_t count_of(const Measured& measured, Outcome outcome) {
  return measured.population.tally.outcomes[static_cast<std::size_t>(outcome)];
}

template <Outcome... outcomes>
Value ended_as(const Measured& measured) {
  return Value((count_of(measured, outcomes) + ...));
}

std::int64_t input_tokens(const Measured& measured) {
  const Tally& tally = measured.population.tally;
  return is_reported(measured) ? tally.entered_input_tokens : tally.input_tokens;
}

std::int64_t output_tokens(const Measured& measured) {
  const Population& population = measured.population;
  return is_reported(measured) ? population.gaps.count : population.tally.output_tokens;
}

std::optional<double> duration_s(const Measured& measured) {
  const Tally& tally = measured.population.tally;
  if (is_reported(measured)) return sim::to_seconds(measured.run.fleet_duration);
  if (count_of(measured, Outcome::completed) == 0) return std::nullopt;
  return sim::to_seconds(tally.last_completion - tally.first_arrival);
}

Value per_second(const Measured& measured, std::int64_t count) {
  return number(ratio(static_cast<double>(count), duration_s(measured).value_or(0)));
}

Value goodput(const Measured& measured) {
  const Tally& tally = measured.population.tally;
  return number(ratio(static_cast<double>(tally.good), static_cast<double>(tally.with_targets)));
}

Value request_goodput(const Measured& measured) {
  const Tally& tally = measured.population.tally;
  if (tally.with_targets == 0) return {};
  const RunFigures& run = measured.run;
  return number(
      ratio(static_cast<double>(tally.good), sim::to_seconds(run.window_end - run.warm_up)));
}

// Σ w·good ÷ Σ w·with_targets over the classes, w the weight of the class.
Value weighted_goodput(const Measured& measured) {
  double good = 0;
  double with_targets = 0;
  for (const Group& slo_class : measured.classes) {
    const Tally& tally = slo_class.population.tally;
    good += slo_class.weight * static_cast<double>(tally.good);
    with_targets += slo_class.weight * static_cast<double>(tally.with_targets);
  }
  return number(ratio(good, with_targets));
}

// Jain's index (Σx)² / (n·Σx²) of the served tokens per weight, over the tenants with requests.
Value jain(const Measured& measured) {
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (const Group& tenant : measured.tenants) {
    const Tally& tally = tenant.population.tally;
    if (tally.offered == 0) continue;
    const double service =
        static_cast<double>(tally.input_tokens + tally.output_tokens) / tenant.weight;
    sum += service;
    squares += service * service;
    ++count;
  }
  return number(ratio(sum * sum, count * squares));
}

// The source of a fitness term. `half` is the value of a rate at which f is one half.
struct FitnessSource {
  std::string_view figure;
  double half = 0;
};

FitnessSource source_of(FitnessMetric metric) {
  switch (metric) {
    case FitnessMetric::throughput:
      return {"request_throughput", 100};
    case FitnessMetric::tokens_per_sec:
      return {"output_throughput", 10000};
    case FitnessMetric::mean_ttft:
      return {"mean_ttft_ms"};
    case FitnessMetric::p50_ttft:
      return {"p50_ttft_ms"};
    case FitnessMetric::p99_ttft:
      return {"p99_ttft_ms"};
    case FitnessMetric::mean_e2e:
      return {"mean_e2el_ms"};
    case FitnessMetric::p50_e2e:
      return {"p50_e2el_ms"};
    case FitnessMetric::p99_e2e:
      return {"p99_e2el_ms"};
  }
  return {};
}

// Σ w·f with f = v/(v + half) of a rate and 1/(1 + v) of a latency. Without a value there is no
// score; in BLIS, a latency without values counts as zero, so a gateway that rejects everything
// scores well.
Value fitness(const Measured& measured) {
  double score = 0;
  for (const FitnessTerm& term : measured.config.fitness) {
    const FitnessSource source = source_of(term.metric);
    const Value value =
        std::ranges::find(figures(), source.figure, &FigureInfo::name)->value(measured);
    const auto* known = value.get_if<double>();
    if (known == nullptr && !is_reported(measured)) return {};
    const double v = known == nullptr ? 0 : *known;
    score += term.weight * (source.half > 0 ? v / (v + source.half) : 1.0 / (1.0 + v));
  }
  return score;
}

Value priority_inversions(const Measured& measured) {
  const std::optional<std::int64_t>& count = measured.run.priority_inversions;
  return count ? Value(*count) : Value();
}

// A latency whose statistics are in a summary.
struct Family {
  std::string name;
  std::string label;
  std::string doc;
  std::string_view population;
  std::vector<std::string_view> in_group_tables{};  // statistics
  std::string blis{};
  std::vector<std::string_view> in_blis{};  // statistics
  const Distribution& (*of)(const Population&);
};

template <Latency latency>
const Distribution& latency_of(const Population& population) {
  return population.latencies[static_cast<std::size_t>(latency)];
}
const Distribution& gaps_of(const Population& population) { return population.gaps; }

std::vector<Family> families() {
  const std::vector<std::string_view> reported{"mean", "p90", "p95", "p99"};
  return {
      {.name = "ttft",
       .label = "TTFT",
       .doc = "the time to first token (TTFT), from arrival at the gateway",
       .population = "requests that arrived in the window and got a first token",
       .in_group_tables = {"p50", "p99"},
       .blis = "ttft",
       .in_blis = reported,
       .of = latency_of<Latency::ttft>},
      {.name = "tpot",
       .label = "TPOT",
       .doc = "the time per output token after the first (TPOT)",
       .population =
           "completed requests with more than one output token that arrived in the window",
       .in_group_tables = {"p99"},
       .of = latency_of<Latency::tpot>},
      {.name = "itl",
       .label = "ITL",
       .doc = "the gap between two consecutive tokens (inter-token latency, ITL)",
       .population = "gaps between the tokens of requests that arrived in the window; tokens that "
                     "come together, as with drafts, have one",
       .blis = "itl",
       .in_blis = reported,
       .of = gaps_of},
      {.name = "e2el",
       .label = "E2E latency",
       .doc = "the end-to-end latency (E2EL), from arrival at the gateway to the last token",
       .population = kCompleted,
       .in_group_tables = {"p99"},
       .blis = "e2e",
       .in_blis = reported,
       .of = latency_of<Latency::e2e>},
      {.name = "queue",
       .label = "time in the queue",
       .doc = "the time from the arrival of the last attempt at the gateway to its dispatch",
       .population = "requests that arrived in the window and were dispatched",
       .of = latency_of<Latency::queue>},
      {.name = "scheduling_delay",
       .label = "scheduling delay",
       .doc = "the time from arrival at the gateway until an engine first schedules the request "
              "(profile blis_0_6: schedules it last)",
       .population = "requests that arrived in the window and were scheduled by an engine",
       .blis = "scheduling_delay",
       .in_blis = {"p99"},
       .of = latency_of<Latency::scheduling_delay>},
  };
}

void add_statistic(std::vector<FigureInfo>& table, const Family& family,
                   const std::string& statistic, const std::string& doc,
                   const std::function<double(const Distribution&)>& of) {
  const auto is_in = [&](const std::vector<std::string_view>& some) {
    return std::ranges::find(some, statistic) != some.end();
  };
  const std::string name = statistic + "_" + family.name + "_ms";
  table.push_back({.name = name,
                   .doc = doc + " of " + family.doc + ".",
                   .unit = "ms",
                   .population = family.population,
                   .better = Better::lower,
                   .is_main = statistic == "p50" || statistic == "p99",
                   .in_group_tables = is_in(family.in_group_tables),
                   .label = statistic + " of " + family.label + " (ms)",
                   .latency = family.name,
                   .statistic = statistic,
                   .blis = is_in(family.in_blis) ? family.blis + "_" + statistic + "_ms" : "",
                   .value = [values_of = family.of, of](const Measured& measured) -> Value {
                     const Distribution& values = values_of(measured.population);
                     if (values.count == 0) return {};
                     return of(values) / kNsPerMs;
                   }});
}

void add(std::vector<FigureInfo>& table, const Family& family) {
  table.push_back({.name = "num_" + family.name,
                   .doc = "Number of " + std::string(family.population) + ".",
                   .unit = family.of == gaps_of ? "gaps" : "requests",
                   .population = family.population,
                   .is_count = true,
                   .latency = family.name,
                   .statistic = "num",
                   .value = [values_of = family.of](const Measured& measured) {
                     return Value(values_of(measured.population).count);
                   }});
  add_statistic(table, family, "mean", "Mean",
                [](const Distribution& values) { return values.moments_ns.mean; });
  add_statistic(table, family, "std", "Standard deviation",
                [](const Distribution& values) { return values.moments_ns.std_dev; });
  add_statistic(table, family, "min", "Minimum",
                [](const Distribution& values) { return values.moments_ns.least; });
  add_statistic(table, family, "max", "Maximum",
                [](const Distribution& values) { return values.moments_ns.largest; });
  for (std::size_t i = 0; i < kPercentiles.size(); ++i) {
    const std::string rank = std::to_string(static_cast<int>(kPercentiles[i]));
    add_statistic(table, family, "p" + rank, rank + "th percentile",
                  [i](const Distribution& values) { return values.percentiles_ns[i]; });
  }
}

std::vector<FigureInfo> all() {
  std::vector<FigureInfo> table{
      {.name = "offered",
       .doc = "Requests that arrived; retries of a request do not count.",
       .unit = "requests",
       .population = kRequests,
       .is_count = true,
       .is_main = true,
       .in_group_tables = true,
       .value = [](const Measured& m) { return Value(m.population.tally.offered); }},
      {.name = "completed",
       .doc = "Requests that delivered all their tokens.",
       .unit = "requests",
       .population = kRequests,
       .better = Better::higher,
       .is_count = true,
       .is_main = true,
       .in_group_tables = true,
       .blis = "completed_requests",
       .value = ended_as<Outcome::completed>},
      {.name = "rejected",
       .doc = "Requests that were rejected by admission, a full queue or a worker.",
       .unit = "requests",
       .population = kRequests,
       .better = Better::lower,
       .is_count = true,
       .is_main = true,
       .in_group_tables = true,
       .value = ended_as<Outcome::rejected>},
      {.name = "expired",
       .doc = "Requests that left a queue after a time-out.",
       .unit = "requests",
       .population = kRequests,
       .better = Better::lower,
       .is_count = true,
       .value = ended_as<Outcome::expired>},
      {.name = "evicted",
       .doc = "Requests that were removed to make room for others.",
       .unit = "requests",
       .population = kRequests,
       .better = Better::lower,
       .is_count = true,
       .value = ended_as<Outcome::evicted>},
      {.name = "failed",
       .doc = "Requests that were lost due to a fault.",
       .unit = "requests",
       .population = kRequests,
       .better = Better::lower,
       .is_count = true,
       .value = ended_as<Outcome::failed>},
      {.name = "cancelled",
       .doc = "Requests that were withdrawn by their clients.",
       .unit = "requests",
       .population = kRequests,
       .better = Better::lower,
       .is_count = true,
       .value = ended_as<Outcome::cancelled>},
      {.name = "unfinished",
       .doc = "Requests that were still in the system when the run ended.",
       .unit = "requests",
       .population = kRequests,
       .better = Better::lower,
       .is_count = true,
       .is_main = true,
       .in_group_tables = true,
       .value = ended_as<Outcome::queued, Outcome::running, Outcome::in_transit>},
      {.name = "total_input_tokens",
       .doc = "Prompt tokens of completed requests; with BLIS's accounting, of all requests that "
              "entered an engine's queue.",
       .unit = "tokens",
       .population = kCompleted,
       .is_count = true,
       .blis = "total_input_tokens",
       .value = [](const Measured& m) { return Value(input_tokens(m)); }},
      {.name = "total_output_tokens",
       .doc = "Output tokens of completed requests; with BLIS's accounting, the number of gaps "
              "between the tokens of all requests.",
       .unit = "tokens",
       .population = kCompleted,
       .is_count = true,
       .blis = "total_output_tokens",
       .value = [](const Measured& m) { return Value(output_tokens(m)); }},
      {.name = "duration",
       .doc = "Time from the first arrival to the last completion; with BLIS's accounting, from "
              "the start of the clock to the last event of any instance.",
       .unit = "s",
       .population = kRequests,
       .better = Better::lower,
       .blis = "vllm_estimated_duration_s",
       .value = [](const Measured& m) { return number(duration_s(m)); }},
      {.name = "request_throughput",
       .doc = "Completed requests per second of the duration.",
       .unit = "requests/s",
       .population = kCompleted,
       .better = Better::higher,
       .is_main = true,
       .blis = "responses_per_sec",
       .value = [](const Measured& m) { return per_second(m, count_of(m, Outcome::completed)); }},
      {.name = "output_throughput",
       .doc = "Output tokens (total_output_tokens) per second of the duration.",
       .unit = "tokens/s",
       .population = kCompleted,
       .better = Better::higher,
       .is_main = true,
       .blis = "tokens_per_sec",
       .value = [](const Measured& m) { return per_second(m, output_tokens(m)); }},
      {.name = "total_token_throughput",
       .doc = "Prompt and output tokens (total_input_tokens + total_output_tokens) per second of "
              "the duration.",
       .unit = "tokens/s",
       .population = kCompleted,
       .better = Better::higher,
       .value =
           [](const Measured& m) { return per_second(m, input_tokens(m) + output_tokens(m)); }},
      {.name = "goodput",
       .doc = "Share of the requests that were completed within all latency targets of their "
              "class; rejected, failed and unfinished requests count as misses.",
       .unit = "share of offered requests",
       .population = kPromised,
       .better = Better::higher,
       .needs_targets = true,
       .is_main = true,
       .in_group_tables = true,
       .value = goodput},
      {.name = "request_goodput",
       .doc = "Requests that were completed within all latency targets of their class, per second "
              "of the window: from warm_up_s to the horizon or the last arrival.",
       .unit = "requests/s",
       .population = kPromised,
       .better = Better::higher,
       .needs_targets = true,
       .value = request_goodput},
      {.name = "approximate",
       .doc = "Whether the percentiles come from a histogram, as they do in streaming mode.",
       .population = kRun,
       .streaming_only = true,
       .value = [](const Measured&) { return Value(true); }},
  };
  for (const Family& family : families()) add(table, family);

  std::vector<FigureInfo> of_the_whole{
      {.name = "weighted_goodput",
       .doc = "Goodput in which every request counts with the weight of its class.",
       .unit = "share of offered requests",
       .population = kPromised,
       .better = Better::higher,
       .needs_targets = true,
       .is_main = true,
       .value = weighted_goodput},
      {.name = "jain_tenant",
       .doc =
           "Jain's fairness index of the service of the tenants: prompt and output tokens of "
           "completed requests, divided by the tenant's weight. 1: all tenants are served equally.",
       .population = "tenants with requests that arrived in the window",
       .better = Better::higher,
       .is_main = true,
       .value = jain},
      {.name = "fitness",
       .doc = "BLIS's fitness score: the weighted sum of the terms of metrics.fitness.",
       .population = kRequests,
       .better = Better::higher,
       .value = fitness},
      {.name = "preemptions",
       .doc = "Number of preemptions of running requests.",
       .unit = "preemptions",
       .population = kRun,
       .better = Better::lower,
       .is_count = true,
       .is_main = true,
       .blis = "preemption_count",
       .value = [](const Measured& m) { return Value(m.run.preemptions); }},
      {.name = "recomputed_tokens",
       .doc = "Tokens of prompts and outputs that were in KV memory when their request was "
              "preempted, and that are computed again because the cache does not hold them when it "
              "returns.",
       .unit = "tokens",
       .population = kRun,
       .better = Better::lower,
       .is_count = true,
       .value = [](const Measured& m) { return Value(m.run.recomputed_tokens); }},
      {.name = "wasted_tokens",
       .doc =
           "Tokens of prompts and outputs, those found in the cache included, that were in KV "
           "memory when their request was withdrawn from its instance: timed out, evicted or "
           "abandoned by the client; also of requests that an instance completed in vain, "
           "because it did not notice that the client had left, of copies of hedged requests that "
           "were not the first to answer, and, with prefill and decode pools, of those that were "
           "refused after their prompt was computed. A retry makes them again.",
       .unit = "tokens",
       .population = kRun,
       .better = Better::lower,
       .is_count = true,
       .value = [](const Measured& m) { return Value(m.run.wasted_tokens); }},
      {.name = "cost",
       .doc =
           "Cost of the instances (instances[].cost_per_hour), each from its start, before it is "
           "ready, until it is no longer wanted, or the end of the run; none if no group states "
           "a cost.",
       .population = kRun,
       .better = Better::lower,
       .value = [](const Measured& m) { return number(m.run.cost); }},
      {.name = "cache_hit_rate",
       .doc = "Share of the full prompt blocks that the prefix cache held, over the requests that "
              "entered a batch; with BLIS's accounting, the mean over the instances of the share "
              "of hits among all blocks.",
       .unit = "share of prompt tokens",
       .population = kRun,
       .better = Better::higher,
       .value = [](const Measured& m) { return number(m.run.cache_hit_rate); }},
      {.name = "mean_regret",
       .doc = "Mean regret of the routing decisions: best score − chosen score.",
       .population = kDecisions,
       .better = Better::lower,
       .value = [](const Measured& m) { return number(m.run.mean_regret); }},
      {.name = "max_regret",
       .doc = "Maximum regret of a routing decision: best score − chosen score.",
       .population = kDecisions,
       .better = Better::lower,
       .value = [](const Measured& m) { return number(m.run.max_regret); }},
      {.name = "priority_inversions",
       .doc = "Pairs of requests that wait in the queue of the same engine at the same time and of "
              "which the one of lower class priority is scheduled first (for the first time, if it "
              "is preempted later); with BLIS's accounting, pairs of the same instance and class "
              "of which the earlier request took more than twice as long as the later one, on "
              "instances that schedule by priority.",
       .unit = "pairs",
       .population = kRun,
       .better = Better::lower,
       .is_count = true,
       .value = priority_inversions},
      {.name = "head_of_line_blocking",
       .doc = "Instances whose mean queue is more than twice the mean over all instances.",
       .unit = "instances",
       .population = kRun,
       .better = Better::lower,
       .is_count = true,
       .value = [](const Measured& m) { return Value(m.run.head_of_line_blocking); }},
  };
  for (FigureInfo& figure : of_the_whole) {
    figure.by_group = false;
    table.push_back(std::move(figure));
  }

  for (FigureInfo& figure : table) {
    if (!figure.label.empty()) continue;
    figure.label = figure.name;
    std::ranges::replace(figure.label, '_', ' ');
    // The name of a count implies its unit.
    if (!figure.is_count && !figure.unit.empty())
      figure.label += " (" + std::string(figure.unit) + ")";
  }
  return table;
}

}  // namespace

void Tally::merge(const Tally& other) {
  offered += other.offered;
  for (std::size_t i = 0; i < outcomes.size(); ++i) outcomes[i] += other.outcomes[i];
  input_tokens += other.input_tokens;
  output_tokens += other.output_tokens;
  entered_input_tokens += other.entered_input_tokens;
  with_targets += other.with_targets;
  good += other.good;
  first_arrival = std::min(first_arrival, other.first_arrival);
  last_completion = std::max(last_completion, other.last_completion);
}

std::span<const FigureInfo> figures() {
  static const std::vector<FigureInfo> kFigures = all();
  return kFigures;
}

}  // namespace spillway::metrics
