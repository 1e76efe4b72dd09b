#include "metrics/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "numerics/moments.h"
#include "sim/value.h"

namespace spillway::metrics {

using sim::RequestId;
using sim::Value;
using workload::Outcome;

namespace {

constexpr std::array<double, 4> kPercentiles{50, 90, 95, 99};
constexpr std::array<const char*, 4> kPercentileNames{"p50", "p90", "p95", "p99"};
constexpr std::array<const char*, kNumFigures> kFigureNames{"ttft", "tpot", "e2el", "queue",
                                                            "scheduling_delay"};
constexpr double kNsPerMs = 1e6;

Value number(std::optional<double> value) { return value ? Value(*value) : Value(); }

std::optional<double> ratio(double numerator, double denominator) {
  if (denominator <= 0) return std::nullopt;
  return numerator / denominator;
}

// Calls `f` with the function that reads the figure of a request.
template <class F>
void with_figure(Figure figure, const Latencies& latencies, const F& f) {
  switch (figure) {
    case Figure::ttft:
      return f([&](RequestId id) { return latencies.ttft_ns(id); });
    case Figure::tpot:
      return f([&](RequestId id) { return latencies.tpot_ns(id); });
    case Figure::e2e:
      return f([&](RequestId id) { return latencies.e2e_ns(id); });
    case Figure::queue:
      return f([&](RequestId id) { return latencies.queue_ns(id); });
    case Figure::scheduling_delay:
      return f([&](RequestId id) { return latencies.scheduling_delay_ns(id); });
  }
}

// num, mean, std and percentiles of one latency.
struct Distribution {
  std::int64_t count = 0;
  numerics::Moments moments_ns;

  void append_to(Value::Map& map, const std::string& name) const {
    const auto in_ms = [&](double ns) { return count > 0 ? Value(ns / kNsPerMs) : Value(); };
    map.emplace_back("num_" + name, Value(count));
    map.emplace_back("mean_" + name + "_ms", in_ms(moments_ns.mean));
    map.emplace_back("std_" + name + "_ms", in_ms(moments_ns.std_dev));
    for (std::size_t i = 0; i < kPercentiles.size(); ++i) {
      map.emplace_back(std::string(kPercentileNames[i]) + "_" + name + "_ms",
                       count > 0 ? in_ms(moments_ns.percentiles[i]) : Value());
    }
  }
};

// Reorders the sample if it is a span.
template <class Sample>
Distribution distribution_of(const Sample& sample, std::int64_t count) {
  if (count == 0) return {};
  return {count, numerics::moments_of(sample, kPercentiles)};
}

// The requests of which a block of figures speaks.
struct Population {
  Tally tally;
  std::array<Distribution, kNumFigures> latencies;
  Distribution gaps;
};

// Which groups make up each population: all, one class, one tenant.
struct Partition {
  std::vector<std::size_t> population_of;  // by group
  std::size_t size = 0;
};

Partition partition_by(const workload::RequestTable& requests, std::size_t size,
                       std::size_t (*population)(const workload::RequestTable&, std::size_t)) {
  Partition result{{}, size};
  for (std::size_t group = 0; group < requests.num_groups(); ++group) {
    result.population_of.push_back(population(requests, group));
  }
  return result;
}

// Requests of several populations: latencies of one figure, gathered population by population.
class Gathered {
 public:
  Gathered(const workload::RequestTable& requests, const Partition& partition,
           const std::vector<Population>& populations)
      : requests_(requests), partition_(partition), end_(populations.size()) {
    begin_.push_back(0);
    for (const Population& one : populations) {
      begin_.push_back(begin_.back() + static_cast<std::size_t>(one.tally.offered));
    }
    values_.resize(begin_.back());
  }

  void gather(Figure figure, const Latencies& latencies, std::size_t num_requests) {
    std::copy(begin_.begin(), begin_.end() - 1, end_.begin());
    with_figure(figure, latencies, [&](const auto& value_of) {
      for (std::size_t row = 0; row < num_requests; ++row) {
        const RequestId id{row};
        if (!requests_.is_counted(id)) continue;
        const double value = value_of(id);
        if (std::isnan(value)) continue;
        const std::size_t population =
            end_.size() == 1 ? 0 : partition_.population_of[requests_.group(id)];
        values_[end_[population]++] = value;
      }
    });
  }
  std::span<double> values(std::size_t population) {
    return std::span(values_).subspan(begin_[population], end_[population] - begin_[population]);
  }

 private:
  const workload::RequestTable& requests_;
  const Partition& partition_;
  std::vector<std::size_t> begin_;
  std::vector<std::size_t> end_;
  std::vector<double> values_;
};

template <class Sample>
void merge_gaps(const std::vector<Sample>& groups, const Partition& partition,
                std::vector<Population>& populations) {
  std::vector<Sample> merged(populations.size());
  for (std::size_t group = 0; group < groups.size(); ++group) {
    merged[partition.population_of[group]].merge(groups[group]);
  }
  for (std::size_t i = 0; i < populations.size(); ++i) {
    populations[i].gaps = distribution_of(merged[i], merged[i].count());
  }
}

std::optional<double> duration_of(const Tally& tally, const Metrics& config,
                                  const RunFigures& run) {
  if (config.accounting == Accounting::blis) return sim::to_seconds(run.fleet_duration);
  if (tally.outcomes[static_cast<std::size_t>(Outcome::completed)] == 0) return std::nullopt;
  return sim::to_seconds(tally.last_completion - tally.first_arrival);
}

Value::Map figures_of(const Population& population, const Metrics& config, const RunFigures& run) {
  const Tally& tally = population.tally;
  const auto outcome = [&](Outcome which) {
    return tally.outcomes[static_cast<std::size_t>(which)];
  };
  const bool reported = config.accounting == Accounting::blis;
  const std::int64_t completed = outcome(Outcome::completed);
  const std::int64_t input = reported ? tally.entered_input_tokens : tally.input_tokens;
  const std::int64_t output = reported ? population.gaps.count : tally.output_tokens;
  const std::optional<double> duration_s = duration_of(tally, config, run);
  const double window_s = std::max(0.0, sim::to_seconds(run.window_end - run.warm_up));
  const auto promised = static_cast<double>(tally.promised);
  const auto good = static_cast<double>(tally.good);
  const auto per_second = [&](std::int64_t count) {
    return number(ratio(static_cast<double>(count), duration_s.value_or(0)));
  };

  Value::Map map{{"offered", Value(tally.offered)},
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
                 {"request_throughput", per_second(completed)},
                 {"output_throughput", per_second(output)},
                 {"total_token_throughput", per_second(input + output)},
                 {"goodput", number(ratio(good, promised))},
                 {"request_goodput", promised > 0 ? number(ratio(good, window_s)) : Value()}};
  if (config.streaming) map.emplace_back("approximate", Value(true));
  const auto append = [&](Figure figure) {
    const auto i = static_cast<std::size_t>(figure);
    population.latencies[i].append_to(map, kFigureNames[i]);
  };
  append(Figure::ttft);
  append(Figure::tpot);
  population.gaps.append_to(map, "itl");
  append(Figure::e2e);
  append(Figure::queue);
  append(Figure::scheduling_delay);
  return map;
}

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

// Σ w·good ÷ Σ w·promised over the classes, w the weight of the class.
std::optional<double> weighted_goodput(const std::vector<Population>& classes,
                                       const std::vector<workload::SloClass>& configs) {
  double good = 0;
  double promised = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    good += configs[i].weight * static_cast<double>(classes[i].tally.good);
    promised += configs[i].weight * static_cast<double>(classes[i].tally.promised);
  }
  return ratio(good, promised);
}

// Jain's index (Σx)² / (n·Σx²) of the served tokens per weight, over the tenants that asked for
// anything.
std::optional<double> jain(const std::vector<Population>& tenants,
                           const std::vector<workload::Tenant>& configs) {
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    const Tally& tally = tenants[i].tally;
    if (tally.offered == 0) continue;
    const double service =
        static_cast<double>(tally.input_tokens + tally.output_tokens) / configs[i].weight;
    sum += service;
    squares += service * service;
    ++count;
  }
  return ratio(sum * sum, count * squares);
}

}  // namespace

void Tally::merge(const Tally& other) {
  offered += other.offered;
  for (std::size_t i = 0; i < outcomes.size(); ++i) outcomes[i] += other.outcomes[i];
  input_tokens += other.input_tokens;
  output_tokens += other.output_tokens;
  entered_input_tokens += other.entered_input_tokens;
  promised += other.promised;
  good += other.good;
  first_arrival = std::min(first_arrival, other.first_arrival);
  last_completion = std::max(last_completion, other.last_completion);
}

Collector::Collector(const Metrics& config, const workload::RequestTable& requests,
                     const workload::Journal& journal)
    : config_(config),
      requests_(requests),
      journal_(journal),
      latencies_(requests, journal, config.accounting),
      tallies_(requests.num_groups()),
      histograms_(config.streaming ? requests.num_groups() : 0) {}

bool Collector::is_good(RequestId id, const workload::SloClass& slo_class) const {
  const double e2e_ns = latencies_.e2e_ns(id);
  if (std::isnan(e2e_ns)) return false;
  const auto met = [](const std::optional<double>& target_s, double latency_ns) {
    return !target_s || std::isnan(latency_ns) || latency_ns <= *target_s * 1e9;
  };
  return met(slo_class.target_ttft_s, latencies_.ttft_ns(id)) &&
         met(slo_class.target_tpot_s, latencies_.tpot_ns(id)) &&
         met(slo_class.target_e2e_s, e2e_ns);
}

void Collector::add(RequestId id) {
  ++added_;
  if (!requests_.is_counted(id)) return;
  const std::size_t row = id.index();
  const Outcome outcome = journal_.outcome[row];
  const std::size_t group = requests_.group(id);
  Tally& tally = tallies_[group];
  ++tally.offered;
  ++tally.outcomes[static_cast<std::size_t>(outcome)];
  tally.first_arrival = std::min(tally.first_arrival, requests_.asked(id));
  if (sim::is_set(journal_.enqueued[row])) tally.entered_input_tokens += requests_.input_tokens(id);
  if (outcome == Outcome::completed) {
    tally.input_tokens += requests_.input_tokens(id);
    tally.output_tokens += requests_.output_tokens(id);
    tally.last_completion = std::max(tally.last_completion, journal_.finished[row]);
  }
  const workload::SloClass& slo_class = requests_.class_of(id);
  if (slo_class.has_targets()) {
    ++tally.promised;
    tally.good += is_good(id, slo_class);
  }
  if (histograms_.empty()) return;
  for (std::size_t i = 0; i < kNumFigures; ++i) {
    with_figure(static_cast<Figure>(i), latencies_, [&](const auto& value_of) {
      const double value = value_of(id);
      if (!std::isnan(value)) histograms_[group][i].add(std::llround(value));
    });
  }
}

Summary Collector::summarize(const RunFigures& run) const {
  const auto populations_of = [&](const Partition& partition) {
    std::vector<Population> populations(partition.size);
    for (std::size_t group = 0; group < tallies_.size(); ++group) {
      populations[partition.population_of[group]].tally.merge(tallies_[group]);
    }
    return populations;
  };
  const auto measure = [&](const Partition& partition, std::vector<Population>& populations) {
    if (config_.streaming) {
      std::vector<Histograms> merged(populations.size());
      for (std::size_t group = 0; group < histograms_.size(); ++group) {
        for (std::size_t i = 0; i < kNumFigures; ++i) {
          merged[partition.population_of[group]][i].merge(histograms_[group][i]);
        }
      }
      for (std::size_t p = 0; p < populations.size(); ++p) {
        for (std::size_t i = 0; i < kNumFigures; ++i) {
          populations[p].latencies[i] = distribution_of(merged[p][i], merged[p][i].count());
        }
      }
      merge_gaps(journal_.token_gaps.approximate, partition, populations);
      return;
    }
    Gathered gathered(requests_, partition, populations);
    for (std::size_t i = 0; i < kNumFigures; ++i) {
      gathered.gather(static_cast<Figure>(i), latencies_, added_);
      for (std::size_t p = 0; p < populations.size(); ++p) {
        const std::span<double> values = gathered.values(p);
        populations[p].latencies[i] = distribution_of(values, std::ssize(values));
      }
    }
    merge_gaps(journal_.token_gaps.exact, partition, populations);
  };

  const Partition whole = partition_by(
      requests_, 1, [](const workload::RequestTable&, std::size_t) -> std::size_t { return 0; });
  const Partition by_class = partition_by(requests_, requests_.slo_classes.size(),
                                          [](const workload::RequestTable& r, std::size_t group) {
                                            return group % r.slo_classes.size();
                                          });
  const Partition by_tenant = partition_by(requests_, requests_.tenants.size(),
                                           [](const workload::RequestTable& r, std::size_t group) {
                                             return group / r.slo_classes.size();
                                           });

  // Populations of the same requests have the same figures: those of the only class that occurs are
  // those of the whole, and those of a tenant with a class of its own are those of the class.
  std::map<std::vector<std::size_t>, Population> known{{{}, Population()}};  // by groups that occur
  const auto measured = [&](const Partition& partition) {
    std::vector<Population> populations = populations_of(partition);
    std::vector<std::vector<std::size_t>> groups(partition.size);
    for (std::size_t group = 0; group < tallies_.size(); ++group) {
      if (tallies_[group].offered > 0) groups[partition.population_of[group]].push_back(group);
    }
    const auto is_known = [&](const auto& some) { return known.contains(some); };
    if (std::ranges::all_of(groups, is_known)) {
      std::ranges::transform(groups, populations.begin(),
                             [&](const auto& some) { return known.at(some); });
    } else {
      measure(partition, populations);
      for (std::size_t i = 0; i < groups.size(); ++i) known.emplace(groups[i], populations[i]);
    }
    return populations;
  };
  const std::vector<Population> all = measured(whole);
  const std::vector<Population> classes = measured(by_class);
  const std::vector<Population> tenants = measured(by_tenant);

  Summary summary;
  summary.overall = figures_of(all[0], config_, run);
  const std::optional<double> fitness = fitness_of(config_, summary.overall);
  summary.overall.emplace_back("weighted_goodput",
                               number(weighted_goodput(classes, requests_.slo_classes)));
  summary.overall.emplace_back("jain_tenant", number(jain(tenants, requests_.tenants)));
  summary.overall.emplace_back("fitness", number(fitness));
  summary.overall.emplace_back("preemptions", Value(run.preemptions));
  summary.overall.emplace_back("cache_hit_rate", number(run.cache_hit_rate));
  summary.overall.emplace_back("mean_regret", number(run.mean_regret));
  summary.overall.emplace_back("max_regret", number(run.max_regret));
  summary.overall.emplace_back("priority_inversions",
                               run.priority_inversions ? Value(*run.priority_inversions) : Value());
  summary.overall.emplace_back("head_of_line_blocking", Value(run.head_of_line_blocking));
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (classes[i].tally.offered == 0) continue;
    summary.by_class.emplace_back(requests_.slo_classes[i].name,
                                  Value(figures_of(classes[i], config_, run)));
  }
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    summary.by_tenant.emplace_back(requests_.tenants[i].name,
                                   Value(figures_of(tenants[i], config_, run)));
  }
  return summary;
}

}  // namespace spillway::metrics
