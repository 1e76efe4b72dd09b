#include "metrics/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>

namespace spillway::metrics {

using sim::Value;
using workload::Outcome;

namespace {

constexpr std::array<double, 4> kPercentiles{50, 90, 95, 99};
constexpr std::array<const char*, 4> kPercentileNames{"p50", "p90", "p95", "p99"};
constexpr double kNsPerMs = 1e6;

Value number(std::optional<double> value) { return value ? Value(*value) : Value(); }

std::optional<double> ratio(double numerator, double denominator) {
  if (denominator <= 0) return std::nullopt;
  return numerator / denominator;
}

// num, mean, std and percentiles of one latency, in ms.
struct Distribution {
  std::int64_t count = 0;
  std::optional<double> mean, std_dev;
  std::array<std::optional<double>, kPercentiles.size()> percentiles;

  void set(double mean_ns, double std_dev_ns, const std::vector<double>& percentiles_ns) {
    mean = mean_ns / kNsPerMs;
    std_dev = std_dev_ns / kNsPerMs;
    for (std::size_t i = 0; i < percentiles.size(); ++i) {
      percentiles[i] = percentiles_ns[i] / kNsPerMs;
    }
  }
  void append_to(Value::Map& map, const std::string& name) const {
    map.emplace_back("num_" + name, Value(count));
    map.emplace_back("mean_" + name + "_ms", number(mean));
    map.emplace_back("std_" + name + "_ms", number(std_dev));
    for (std::size_t i = 0; i < percentiles.size(); ++i) {
      map.emplace_back(std::string(kPercentileNames[i]) + "_" + name + "_ms",
                       number(percentiles[i]));
    }
  }
};

Distribution distribution_of(std::vector<double>& values) {
  Distribution result;
  std::erase_if(values, [](double value) { return std::isnan(value); });
  result.count = std::ssize(values);
  if (values.empty()) return result;
  const double n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  result.set(mean, std::sqrt(squares / n), numerics::percentiles(values, kPercentiles));
  return result;
}

Distribution distribution_of(numerics::WeightedSample sample) {
  Distribution result;
  result.count = sample.count();
  if (result.count > 0) {
    result.set(sample.mean(), sample.std_dev(), sample.percentiles(kPercentiles));
  }
  return result;
}

// Requests that met their promises, among those that were promised anything.
struct Goodput {
  std::int64_t good = 0;
  std::int64_t promised = 0;
  double weighted_good = 0;
  double weighted_promised = 0;

  void add(const workload::SloClass& slo_class, const Latencies& latencies) {
    if (!slo_class.has_targets()) return;
    const auto met = [](const std::optional<double>& target_s, double latency_ns) {
      return !target_s || latency_ns <= *target_s * 1e9;
    };
    const bool is_good =
        !std::isnan(latencies.e2e_ns) && met(slo_class.target_ttft_s, latencies.ttft_ns) &&
        (std::isnan(latencies.tpot_ns) || met(slo_class.target_tpot_s, latencies.tpot_ns)) &&
        met(slo_class.target_e2e_s, latencies.e2e_ns);
    ++promised;
    weighted_promised += slo_class.weight;
    if (!is_good) return;
    ++good;
    weighted_good += slo_class.weight;
  }
};

// The figures of one population, accumulated row by row.
class Population {
 public:
  Population(const Record& record, const Metrics& config) : record_(record), config_(config) {}

  void add(std::size_t row) {
    const workload::Journal& journal = record_.journal;
    const workload::Requests& source = *record_.requests.source;
    const Latencies& latencies = record_.rows[row];
    first_arrival_ = offered_ == 0 ? source.arrival[row] : first_arrival_;
    ++offered_;
    ++outcomes_[static_cast<std::size_t>(journal.outcome[row])];
    entered_input_ += sim::is_set(journal.enqueued[row]) ? source.input_tokens[row] : 0;
    if (journal.outcome[row] == Outcome::completed) {
      input_tokens_ += source.input_tokens[row];
      output_tokens_ += source.output_tokens[row];
      last_completion_ = std::max(last_completion_, journal.finished[row]);
    }
    ttft_.push_back(latencies.ttft_ns);
    tpot_.push_back(latencies.tpot_ns);
    e2e_.push_back(latencies.e2e_ns);
    queue_.push_back(latencies.queue_ns);
    scheduling_.push_back(latencies.scheduling_delay_ns);
    goodput_.add(record_.requests.slo_classes[record_.requests.slo_class[row]], latencies);
  }
  void add_gaps(const numerics::WeightedSample& gaps) { gaps_.merge(gaps); }

  std::int64_t offered() const { return offered_; }
  std::int64_t served_tokens() const { return input_tokens_ + output_tokens_; }

  Value::Map figures() {
    const bool reported = config_.accounting == Accounting::blis;
    const std::int64_t completed = outcome(Outcome::completed);
    const std::int64_t input = reported ? entered_input_ : input_tokens_;
    const std::int64_t output = reported ? gaps_.count() : output_tokens_;
    const std::optional<double> duration_s = duration();
    const double window_s = std::max(0.0, sim::to_seconds(record_.window_end - record_.warm_up));
    const auto promised = static_cast<double>(goodput_.promised);
    const auto good = static_cast<double>(goodput_.good);

    Value::Map map{
        {"offered", Value(offered_)},
        {"completed", Value(completed)},
        {"rejected", Value(outcome(Outcome::rejected))},
        {"expired", Value(outcome(Outcome::expired))},
        {"evicted", Value(outcome(Outcome::evicted))},
        {"failed", Value(outcome(Outcome::failed))},
        {"cancelled", Value(outcome(Outcome::cancelled))},
        {"unfinished", Value(outcome(Outcome::queued) + outcome(Outcome::running) +
                             outcome(Outcome::in_transit))},
        {"total_input_tokens", Value(input)},
        {"total_output_tokens", Value(output)},
        {"duration", number(duration_s)},
        {"request_throughput",
         number(ratio(static_cast<double>(completed), duration_s.value_or(0)))},
        {"output_throughput", number(ratio(static_cast<double>(output), duration_s.value_or(0)))},
        {"total_token_throughput",
         number(ratio(static_cast<double>(input + output), duration_s.value_or(0)))},
        {"goodput", number(ratio(good, promised))},
        {"request_goodput", promised > 0 ? number(ratio(good, window_s)) : Value()}};
    distribution_of(ttft_).append_to(map, "ttft");
    distribution_of(tpot_).append_to(map, "tpot");
    distribution_of(gaps_).append_to(map, "itl");
    distribution_of(e2e_).append_to(map, "e2el");
    distribution_of(queue_).append_to(map, "queue");
    distribution_of(scheduling_).append_to(map, "scheduling_delay");
    return map;
  }

  std::optional<double> weighted_goodput() const {
    return ratio(goodput_.weighted_good, goodput_.weighted_promised);
  }

 private:
  std::optional<double> duration() const {
    if (config_.accounting == Accounting::blis) return sim::to_seconds(record_.fleet_duration);
    if (outcome(Outcome::completed) == 0) return std::nullopt;
    return sim::to_seconds(last_completion_ - first_arrival_);
  }
  std::int64_t outcome(Outcome which) const { return outcomes_[static_cast<std::size_t>(which)]; }

  const Record& record_;
  const Metrics& config_;
  std::int64_t offered_ = 0;
  std::array<std::int64_t, workload::kOutcomeNames.size()> outcomes_{};
  std::int64_t input_tokens_ = 0;
  std::int64_t output_tokens_ = 0;
  std::int64_t entered_input_ = 0;
  sim::Time first_arrival_{0};
  sim::Time last_completion_{0};
  Goodput goodput_;
  std::vector<double> ttft_, tpot_, e2e_, queue_, scheduling_;
  numerics::WeightedSample gaps_;
};

std::optional<double> figure(const Value::Map& figures, std::string_view name) {
  for (const auto& [key, value] : figures) {
    if (key != name) continue;
    if (const auto* real = value.get_if<double>()) return *real;
  }
  return std::nullopt;
}

// What a fitness term looks at. A rate has a half: the value at which f is one half.
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
// score; BLIS takes a latency that nobody has for zero, so that a gateway which rejects everything
// scores well.
std::optional<double> fitness_of(const Metrics& config, const Value::Map& figures) {
  double score = 0;
  for (const FitnessTerm& term : config.fitness) {
    const FitnessSource source = source_of(term.metric);
    std::optional<double> value = figure(figures, source.figure);
    if (config.accounting == Accounting::blis) value = value.value_or(0);
    if (!value) return std::nullopt;
    score +=
        term.weight * (source.half > 0 ? *value / (*value + source.half) : 1.0 / (1.0 + *value));
  }
  return score;
}

// Jain's index (Σx)² / (n·Σx²) of the served tokens per weight, over the tenants that asked for
// anything.
std::optional<double> jain(const std::vector<Population>& tenants,
                           const std::vector<workload::Tenant>& configs) {
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    if (tenants[i].offered() == 0) continue;
    const double service = static_cast<double>(tenants[i].served_tokens()) / configs[i].weight;
    sum += service;
    squares += service * service;
    ++count;
  }
  return ratio(sum * sum, count * squares);
}

}  // namespace

Summary summarize(const Metrics& config, const Record& record) {
  const workload::RequestTable& requests = record.requests;
  Population all(record, config);
  std::vector<Population> classes(requests.slo_classes.size(), Population(record, config));
  std::vector<Population> tenants(requests.tenants.size(), Population(record, config));
  std::vector<bool> class_occurs(classes.size(), false);
  for (std::size_t row = 0; row < record.offered; ++row) {
    if (requests.source->arrival[row] < record.warm_up) continue;
    all.add(row);
    classes[requests.slo_class[row]].add(row);
    tenants[requests.tenant[row]].add(row);
    class_occurs[requests.slo_class[row]] = true;
  }
  for (std::size_t i = 0; i < requests.groups.size(); ++i) {
    all.add_gaps(record.token_gaps[i]);
    classes[requests.groups[i].slo_class].add_gaps(record.token_gaps[i]);
    tenants[requests.groups[i].tenant].add_gaps(record.token_gaps[i]);
  }

  Summary summary;
  summary.overall = all.figures();
  const std::optional<double> fitness = fitness_of(config, summary.overall);
  summary.overall.emplace_back("weighted_goodput", number(all.weighted_goodput()));
  summary.overall.emplace_back("jain_tenant", number(jain(tenants, requests.tenants)));
  summary.overall.emplace_back("fitness", number(fitness));
  summary.overall.emplace_back("preemptions", Value(record.preemptions));
  summary.overall.emplace_back("priority_inversions", Value(record.priority_inversions));
  summary.overall.emplace_back("head_of_line_blocking", Value(record.head_of_line_blocking));
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (!class_occurs[i]) continue;
    summary.by_class.emplace_back(requests.slo_classes[i].name, Value(classes[i].figures()));
  }
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    summary.by_tenant.emplace_back(requests.tenants[i].name, Value(tenants[i].figures()));
  }
  return summary;
}

}  // namespace spillway::metrics
