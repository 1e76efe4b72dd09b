#include "metrics/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "numerics/moments.h"
#include "sim/value.h"

namespace spillway::metrics {

using sim::RequestId;
using sim::Value;
using workload::Outcome;

namespace {

// Calls `f` with the function that reads the latency of a request.
template <class F>
void with_latency(Latency latency, const Latencies& latencies, const F& f) {
  switch (latency) {
    case Latency::ttft:
      return f([&](RequestId id) { return latencies.ttft_ns(id); });
    case Latency::tpot:
      return f([&](RequestId id) { return latencies.tpot_ns(id); });
    case Latency::e2e:
      return f([&](RequestId id) { return latencies.e2e_ns(id); });
    case Latency::queue:
      return f([&](RequestId id) { return latencies.queue_ns(id); });
    case Latency::scheduling_delay:
      return f([&](RequestId id) { return latencies.scheduling_delay_ns(id); });
  }
}

// Reorders the sample if it is a span.
template <class Sample>
Distribution distribution_of(const Sample& sample, std::int64_t count) {
  if (count == 0) return {};
  return {count, numerics::moments_of(sample, kPercentiles)};
}

// The groups of each population: all, one class, one tenant.
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

// The values of one latency, gathered population by population.
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

  void gather(Latency latency, const Latencies& latencies, std::size_t num_requests) {
    std::copy(begin_.begin(), begin_.end() - 1, end_.begin());
    with_latency(latency, latencies, [&](const auto& value_of) {
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

Value::Map figures_of(const Measured& measured, bool is_whole) {
  Value::Map map;
  map.reserve(figures().size());
  for (const FigureInfo& figure : figures()) {
    if (!is_whole && !figure.by_group) continue;
    if (figure.streaming_only && !measured.config.streaming) continue;
    map.emplace_back(figure.name, figure.value(measured));
  }
  return map;
}

}  // namespace

Collector::Collector(const Metrics& config, const workload::RequestTable& requests,
                     const workload::RequestStates& states)
    : config_(config),
      requests_(requests),
      states_(states),
      latencies_(requests, states, config.accounting),
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
  const Outcome outcome = states_.outcome[row];
  const std::size_t group = requests_.group(id);
  Tally& tally = tallies_[group];
  ++tally.offered;
  ++tally.outcomes[static_cast<std::size_t>(outcome)];
  tally.first_arrival = std::min(tally.first_arrival, requests_.first_arrival(id));
  if (sim::is_set(states_.enqueued[row])) tally.entered_input_tokens += requests_.input_tokens(id);
  if (outcome == Outcome::completed) {
    tally.input_tokens += requests_.input_tokens(id);
    tally.output_tokens += requests_.output_tokens(id);
    tally.last_completion = std::max(tally.last_completion, states_.finished[row]);
  }
  const workload::SloClass& slo_class = requests_.class_of(id);
  if (slo_class.has_targets()) {
    ++tally.with_targets;
    tally.good += is_good(id, slo_class);
  }
  if (histograms_.empty()) return;
  for (std::size_t i = 0; i < kNumLatencies; ++i) {
    with_latency(static_cast<Latency>(i), latencies_, [&](const auto& value_of) {
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
        for (std::size_t i = 0; i < kNumLatencies; ++i) {
          merged[partition.population_of[group]][i].merge(histograms_[group][i]);
        }
      }
      for (std::size_t p = 0; p < populations.size(); ++p) {
        for (std::size_t i = 0; i < kNumLatencies; ++i) {
          populations[p].latencies[i] = distribution_of(merged[p][i], merged[p][i].count());
        }
      }
      merge_gaps(states_.token_gaps.approximate, partition, populations);
      return;
    }
    Gathered gathered(requests_, partition, populations);
    for (std::size_t i = 0; i < kNumLatencies; ++i) {
      gathered.gather(static_cast<Latency>(i), latencies_, added_);
      for (std::size_t p = 0; p < populations.size(); ++p) {
        const std::span<double> values = gathered.values(p);
        populations[p].latencies[i] = distribution_of(values, std::ssize(values));
      }
    }
    merge_gaps(states_.token_gaps.exact, partition, populations);
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

  // Populations of the same requests share their figures: the only class that occurs equals the
  // whole, and a tenant with a class of its own equals that class.
  std::map<std::vector<std::size_t>, Population> known{
      {{}, Population()}};  // by the groups that occur
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

  const auto block = [&](const Population& population, bool is_whole = false) {
    return figures_of({population, classes, tenants, requests_, config_, run}, is_whole);
  };
  Summary summary;
  summary.overall = block(all[0], true);
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (classes[i].tally.offered == 0) continue;
    summary.by_class.emplace_back(requests_.slo_classes[i].name, Value(block(classes[i])));
  }
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    summary.by_tenant.emplace_back(requests_.tenants[i].name, Value(block(tenants[i])));
  }
  return summary;
}

}  // namespace spillway::metrics
