#include "metrics/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/log_histogram.h"
#include "numerics/moments.h"
#include "numerics/weighted_sample.h"
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
  Distribution result{.count = count};
  if (count > 0) {
    result.moments_ns = numerics::moments_of(sample, kPercentiles, result.percentiles_ns);
  }
  return result;
}

// The values of one latency, population by population.
class Gathered {
 public:
  explicit Gathered(const Partition& partition) : partition_(partition) {
    std::size_t size = 0;
    for (const Population* population : partition.populations) {
      begin_.push_back(size);
      size += static_cast<std::size_t>(population->tally.offered);
    }
    values_.resize(size);
  }

  void clear() { end_ = begin_; }
  void add(std::size_t group, double value) {
    values_[end_[partition_.position_of[group]]++] = value;
  }
  void measure(Latency latency) {
    for (std::size_t i = 0; i < begin_.size(); ++i) {
      const auto values = std::span(values_).subspan(begin_[i], end_[i] - begin_[i]);
      partition_.populations[i]->latencies[static_cast<std::size_t>(latency)] =
          distribution_of(values, std::ssize(values));
    }
  }

 private:
  const Partition& partition_;
  std::vector<std::size_t> begin_;  // by population
  std::vector<std::size_t> end_;
  std::vector<double> values_;
};

// The groups of each population.
std::vector<std::vector<std::size_t>> groups_of(const Partition& partition) {
  std::vector<std::vector<std::size_t>> groups(partition.populations.size());
  for (std::size_t group = 0; group < partition.position_of.size(); ++group) {
    groups[partition.position_of[group]].push_back(group);
  }
  return groups;
}

// Of a population; `histogram_of` returns the histogram of a group.
template <class HistogramOf>
Distribution distribution_of_groups(std::span<const std::size_t> groups,
                                    const HistogramOf& histogram_of) {
  const numerics::LogHistogram& first = histogram_of(groups.front());
  if (groups.size() == 1) return distribution_of(first, first.count());
  numerics::LogHistogram merged = first;
  for (const std::size_t group : groups.subspan(1)) merged.merge(histogram_of(group));
  return distribution_of(merged, merged.count());
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

Value::Map figures_of(const Group& group, const Summary& of) {
  return figures_of({group.population, of.classes, of.tenants, of.config, of.run}, false);
}

}  // namespace

Value::Map Summary::overall() const {
  return figures_of({all, classes, tenants, config, run}, true);
}

Value::Map Summary::by_class() const {
  Value::Map map;
  for (const Group& slo_class : classes) {
    if (slo_class.population.tally.offered > 0) {
      map.emplace_back(slo_class.name, figures_of(slo_class, *this));
    }
  }
  return map;
}

Value::Map Summary::by_tenant() const {
  Value::Map map;
  for (const Group& tenant : tenants) map.emplace_back(tenant.name, figures_of(tenant, *this));
  return map;
}

Collector::Collector(const Metrics& config, const workload::RequestTable& requests,
                     const workload::RequestStates& states)
    : config_(config),
      requests_(requests),
      states_(states),
      latencies_(requests, states, config.accounting),
      tallies_(requests.num_groups()),
      histograms_(config.streaming ? requests.num_groups() : 0) {}

bool Collector::is_good(RequestId id) const { return is_good(id, requests_.class_of(id)); }

bool Collector::is_good(RequestId id, const workload::SloClass& slo_class) const {
  const double e2e_ns = latencies_.e2e_ns(id);
  if (!slo_class.has_targets() || std::isnan(e2e_ns)) return false;
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
  if (const workload::SloClass& slo_class = requests_.class_of(id); slo_class.has_targets()) {
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

// Reads the requests once per latency, for all partitions.
void Collector::measure(std::span<const Partition> partitions) const {
  Population& all = *partitions.front().populations.front();
  std::vector<double> values(static_cast<std::size_t>(all.tally.offered));
  const bool all_count = values.size() == added_;  // none arrived during the warm-up
  std::vector<Gathered> parts(partitions.begin() + 1, partitions.end());
  std::vector<std::uint32_t> group_of_row(parts.empty() ? 0 : added_);
  for (std::size_t row = 0; row < group_of_row.size(); ++row) {
    group_of_row[row] = static_cast<std::uint32_t>(requests_.group(RequestId{row}));
  }
  for (std::size_t i = 0; i < kNumLatencies; ++i) {
    std::size_t count = 0;
    for (Gathered& part : parts) part.clear();
    with_latency(static_cast<Latency>(i), latencies_, [&](const auto& value_of) {
      for (std::size_t row = 0; row < added_; ++row) {
        const RequestId id{row};
        if (!all_count && !requests_.is_counted(id)) continue;
        const double value = value_of(id);
        if (std::isnan(value)) continue;
        values[count++] = value;
        for (Gathered& part : parts) part.add(group_of_row[row], value);
      }
    });
    all.latencies[i] =
        distribution_of(std::span(values).first(count), static_cast<std::int64_t>(count));
    for (Gathered& part : parts) part.measure(static_cast<Latency>(i));
  }
  workload::GapIndex::Room room;
  for (const Partition& partition : partitions) {
    const auto groups = groups_of(partition);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const numerics::ValueCounts gaps = states_.token_gaps.exact(groups[i], room);
      partition.populations[i]->gaps = distribution_of(gaps, numerics::count(gaps));
    }
  }
}

void Collector::measure_histograms(std::span<const Partition> partitions) const {
  using numerics::LogHistogram;
  for (const Partition& partition : partitions) {
    const auto groups = groups_of(partition);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      Population& population = *partition.populations[i];
      for (std::size_t k = 0; k < kNumLatencies; ++k) {
        population.latencies[k] = distribution_of_groups(
            groups[i],
            [&](std::size_t group) -> const LogHistogram& { return histograms_[group][k]; });
      }
      const auto gaps_of = [&](std::size_t group) -> const LogHistogram& {
        return states_.token_gaps.approximate()[group];
      };
      population.gaps = distribution_of_groups(groups[i], gaps_of);
    }
  }
}

Summary Collector::summarize(const RunFigures& run) const {
  Summary summary{.config = config_, .run = run};
  for (const auto& slo_class : requests_.slo_classes) {
    summary.classes.push_back({.name = slo_class.name, .weight = slo_class.weight});
  }
  summary.tenants.reserve(requests_.tenants.size());
  for (const auto& tenant : requests_.tenants) {
    summary.tenants.push_back({.name = tenant.name, .weight = tenant.weight});
  }
  const std::size_t num_classes = summary.classes.size();
  Partition whole{.populations = {&summary.all}};
  Partition by_class;
  Partition by_tenant;
  for (Group& slo_class : summary.classes) by_class.populations.push_back(&slo_class.population);
  for (Group& tenant : summary.tenants) by_tenant.populations.push_back(&tenant.population);
  for (std::size_t group = 0; group < tallies_.size(); ++group) {
    whole.position_of.push_back(0);
    by_class.position_of.push_back(group % num_classes);
    by_tenant.position_of.push_back(group / num_classes);
    if (tallies_[group].offered == 0) continue;
    for (const Partition* partition : {&whole, &by_class, &by_tenant}) {
      partition->populations[partition->position_of[group]]->tally.merge(tallies_[group]);
    }
  }

  // Populations of the same requests share their figures: the only class that occurs equals the
  // whole, and a tenant with a class of its own equals that class.
  const auto offered = [](const Population& population) { return population.tally.offered; };
  const auto twin_of_class = [&](std::size_t i) -> const Population* {
    return offered(summary.classes[i].population) == offered(summary.all) ? &summary.all : nullptr;
  };
  const auto twin_of_tenant = [&](std::size_t i) -> const Population* {
    const std::int64_t count = offered(summary.tenants[i].population);
    if (count == offered(summary.all)) return &summary.all;
    for (std::size_t c = 0; c < num_classes; ++c) {
      const Population& of_class = summary.classes[c].population;
      if (count == tallies_[i * num_classes + c].offered && count == offered(of_class)) {
        return &of_class;
      }
    }
    return nullptr;
  };
  const auto all_have_twins = [&](const std::vector<Group>& groups, const auto& twin_of) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (offered(groups[i].population) > 0 && !twin_of(i)) return false;
    }
    return true;
  };
  const auto copy_twins = [&](std::vector<Group>& groups, const auto& twin_of) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      Population& population = groups[i].population;
      if (offered(population) == 0) continue;
      population.latencies = twin_of(i)->latencies;
      population.gaps = twin_of(i)->gaps;
    }
  };
  const bool copies_classes = all_have_twins(summary.classes, twin_of_class);
  const bool copies_tenants = all_have_twins(summary.tenants, twin_of_tenant);
  std::vector<Partition> partitions{std::move(whole)};
  if (!copies_classes) partitions.push_back(std::move(by_class));
  if (!copies_tenants) partitions.push_back(std::move(by_tenant));
  config_.streaming ? measure_histograms(partitions) : measure(partitions);
  if (copies_classes) copy_twins(summary.classes, twin_of_class);
  if (copies_tenants) copy_twins(summary.tenants, twin_of_tenant);
  return summary;
}

}  // namespace spillway::metrics
