#include "cluster/run.h"

#include <algorithm>
#include <array>

#include "instance/instance.h"
#include "metrics/anomalies.h"
#include "router/router.h"
#include "signals/board.h"
#include "sim/event_queue.h"

namespace spillway::cluster {

using sim::Event;
using sim::InstanceId;
using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

constexpr std::uint64_t kEventsBetweenChecks = 1u << 14;

bool uses_priority(const instance::Scheduler& scheduler) {
  return std::visit(
      [](const auto& config) {
        if constexpr (requires { config.priority; }) {
          return config.priority != instance::Priority::constant;
        }
        return false;
      },
      scheduler);
}

/// The event loop of one run: takes the earliest event and hands it to the stage it belongs to.
class Run final : workload::FinishListener {
 public:
  Run(const Simulation& simulation, std::uint64_t seed)
      : simulation_(simulation),
        requests_(offered_requests(simulation, seed), simulation.tenants, simulation.slo_classes,
                  sim::from_seconds(simulation.warm_up_s)),
        journal_(requests_.size()),
        pipeline_(simulation.gateway, requests_, journal_, events_, seed),
        dispatcher_(simulation.router, num_instances(simulation), seed),
        board_(simulation.signals, make_fleet()),
        horizon_(sim::from_seconds(simulation.horizon_s.value_or(sim::kLongestSpan_s))) {}

  Output operator()(const std::function<bool()>& interrupted) {
    schedule_arrival(0);
    while (!events_.empty() && events_.top().time <= horizon_) {
      const Event event = events_.pop();
      now_ = event.time;
      handle(event);
#ifdef SPILLWAY_CHECK_EVERY_EVENT
      for (const auto& one : fleet_) one->check_memory();
#endif
      if (events_.popped() % kEventsBetweenChecks == 0 && interrupted && interrupted()) {
        throw sim::Interrupted();
      }
    }
    return finish();
  }

 private:
  static std::size_t num_instances(const Simulation& simulation) {
    std::size_t total = 0;
    for (const auto& group : simulation.instances) total += static_cast<std::size_t>(group.count);
    return total;
  }

  std::vector<const signals::Probe*> make_fleet() {
    const bool reports = simulation_.metrics.accounting == metrics::Accounting::blis;
    if (reports) {
      journal_.reported_ttft.assign(requests_.size(), Time{0});
      journal_.reported_decode.assign(requests_.size(), Time{0});
    }
    const instance::Environment environment{
        requests_, journal_, events_, *this, simulation_.quantum_ns, reports};
    std::vector<const signals::Probe*> probes;
    for (const auto& group : simulation_.instances) {
      for (std::int64_t i = 0; i < group.count; ++i) {
        fleet_.push_back(make(group, InstanceId{fleet_.size()}, environment));
        probes.push_back(fleet_.back().get());
      }
    }
    return probes;
  }

  // Arrivals enter the queue one at a time: the next one when its predecessor has arrived.
  void schedule_arrival(std::size_t row) {
    if (row >= requests_.size()) return;
    const auto subject = static_cast<std::uint32_t>(row);
    events_.push({requests_.source->arrival[row], Phase::arrival, subject, subject});
  }

  void handle(const Event& event) {
    const RequestId request{event.subject};
    switch (event.phase) {
      case Phase::arrival:
        schedule_arrival(event.subject + std::size_t{1});
        pipeline_.arrive(request, now_);
        break;
      case Phase::admission:
        pipeline_.admit(request, board_.view(dispatcher_.in_flight(), now_), now_);
        break;
      case Phase::queue_drain:
        pipeline_.drain(now_);
        break;
      case Phase::routing:
        route(request);
        break;
      case Phase::ingress:
        fleet_[event.tie]->enqueue(request, now_);
        break;
      case Phase::step_start:
        fleet_[event.subject]->start_step(now_);
        break;
      case Phase::step_end:
        fleet_[event.subject]->end_step(now_);
        break;
      case Phase::permit_release:
        pipeline_.release(request, now_);
        break;
      case Phase::client_reaction:
      case Phase::set_points:
      case Phase::telemetry:
      case Phase::timeline_sample:
      case Phase::expiry:
        sim::require(false, "an event of a phase that nobody handles");
    }
  }

  void route(RequestId request) {
    const signals::View view = board_.view(dispatcher_.in_flight(), now_);
    const InstanceId chosen = dispatcher_.route(pipeline_.view_of(request), view, now_);
    journal_.instance[request.index()] = static_cast<std::int32_t>(chosen.value);
    const Time delay = fleet_[chosen.index()]->entry_delay(request);
    events_.push({now_ + delay, Phase::ingress, chosen.value, request.value});
  }

  void finished(RequestId request) override {
    const auto instance = static_cast<std::size_t>(journal_.instance[request.index()]);
    dispatcher_.finished(InstanceId{instance});
  }

  Output finish() {
    Output output;
    output.requests = requests_.source;
    output.end_s = sim::to_seconds(now_);
    output.events = static_cast<std::int64_t>(events_.popped());
    for (const auto& tenant : requests_.tenants) output.tenants.push_back(tenant.name);
    for (const auto& slo_class : requests_.slo_classes)
      output.slo_classes.push_back(slo_class.name);

    const auto offered = static_cast<std::size_t>(pipeline_.books().attempts);
    const metrics::FleetCounts counts = collect_fleet(output);
    output.ledger =
        metrics::balance(journal_, offered, pipeline_.books(), pipeline_.queued(), counts);
    std::vector<metrics::Latencies> rows;
    rows.reserve(offered);
    for (std::size_t row = 0; row < offered; ++row) {
      rows.push_back(
          metrics::latencies_of(row, requests_, journal_, simulation_.metrics.accounting));
    }
    output.summary = summarize(rows, output);
    fill_columns(rows, output);
    return output;
  }

  Time fleet_duration() const {
    Time last{0};
    for (const auto& one : fleet_) last = std::max(last, one->counters().last_event);
    return last;
  }

  metrics::FleetCounts collect_fleet(Output& output) const {
    metrics::FleetCounts counts;
    const double duration_s = sim::to_seconds(fleet_duration());
    for (const auto& one : fleet_) {
      one->check_memory();
      const instance::Counters& c = one->counters();
      counts.entered += c.entered;
      counts.refused += c.refused;
      counts.completed += c.completed;
      output.steps += c.steps;
      output.instances.push_back(
          {c.completed, c.refused, c.preemptions, c.steps,
           duration_s > 0 ? c.waiting_time_s / duration_s : 0,
           c.steps > 0 ? static_cast<double>(c.waiting_after_steps) / static_cast<double>(c.steps)
                       : 0});
    }
    return counts;
  }

  metrics::Summary summarize(const std::vector<metrics::Latencies>& rows, const Output& output) {
    metrics::Record record{
        .requests = requests_,
        .journal = journal_,
        .offered = rows.size(),
        .rows = rows,
        .token_gaps = {},
        .warm_up = sim::from_seconds(simulation_.warm_up_s),
        .window_end = simulation_.horizon_s ? horizon_ : last_arrival(rows.size()),
        .fleet_duration = fleet_duration()};
    record.token_gaps.resize(requests_.groups.size());
    for (const auto& one : fleet_) {
      for (std::size_t i = 0; i < record.token_gaps.size(); ++i) {
        record.token_gaps[i].merge(one->token_gaps()[i]);
      }
    }
    std::vector<double> mean_waiting;
    for (const InstanceReport& report : output.instances) {
      record.preemptions += report.preemptions;
      mean_waiting.push_back(simulation_.metrics.accounting == metrics::Accounting::blis
                                 ? report.mean_waiting_at_step
                                 : report.mean_waiting);
    }
    record.head_of_line_blocking = metrics::count_head_of_line_blocking(mean_waiting);
    record.priority_inversions = count_inversions(rows);
    return metrics::summarize(simulation_.metrics, record);
  }

  Time last_arrival(std::size_t offered) const {
    return offered > 0 ? requests_.source->arrival[offered - 1] : Time{0};
  }

  // Only instances that order their queue by priority can invert one.
  std::int64_t count_inversions(const std::vector<metrics::Latencies>& rows) const {
    std::vector<bool> by_priority;
    for (const auto& group : simulation_.instances) {
      by_priority.insert(by_priority.end(), static_cast<std::size_t>(group.count),
                         uses_priority(group.scheduler));
    }
    std::vector<metrics::Served> served;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::int32_t instance = journal_.instance[row];
      if (journal_.outcome[row] != workload::Outcome::completed) continue;
      if (!by_priority[static_cast<std::size_t>(instance)]) continue;
      served.push_back(
          {instance, requests_.slo_class[row], requests_.source->arrival[row], rows[row].e2e_ns});
    }
    return metrics::count_priority_inversions(served);
  }

  void fill_columns(const std::vector<metrics::Latencies>& rows, Output& output) const {
    const std::size_t n = rows.size();
    const auto offered = static_cast<std::ptrdiff_t>(n);
    const workload::Requests& source = *requests_.source;
    Columns& columns = output.columns;
    columns.tenant.assign(requests_.tenant.begin(), requests_.tenant.begin() + offered);
    columns.slo_class.assign(requests_.slo_class.begin(), requests_.slo_class.begin() + offered);
    columns.instance.assign(journal_.instance.begin(), journal_.instance.begin() + offered);
    columns.input_tokens.assign(source.input_tokens.begin(), source.input_tokens.begin() + offered);
    columns.preemptions.assign(journal_.preemptions.begin(),
                               journal_.preemptions.begin() + offered);
    output.reasons.push_back("");
    for (std::size_t row = 0; row < n; ++row) {
      const std::string reason{metrics::reason_name(journal_.reason[row])};
      auto known = std::find(output.reasons.begin(), output.reasons.end(), reason);
      if (known == output.reasons.end()) known = output.reasons.insert(known, reason);
      columns.reason.push_back(static_cast<std::uint8_t>(known - output.reasons.begin()));
      columns.admitted.push_back(sim::is_set(journal_.admitted[row]));
      columns.outcome.push_back(static_cast<std::uint8_t>(journal_.outcome[row]));
      columns.output_tokens.push_back(std::min(journal_.emitted[row], source.output_tokens[row]));
      columns.arrival_s.push_back(sim::to_seconds(source.arrival[row]));
      const auto seconds = [](double ns) { return ns * 1e-9; };
      columns.ttft_s.push_back(seconds(rows[row].ttft_ns));
      columns.e2e_s.push_back(seconds(rows[row].e2e_ns));
      columns.tpot_s.push_back(seconds(rows[row].tpot_ns));
      columns.queue_s.push_back(seconds(rows[row].queue_ns));
      columns.scheduling_delay_s.push_back(seconds(rows[row].scheduling_delay_ns));
      columns.itl_mean_s.push_back(seconds(rows[row].itl_mean_ns));
    }
  }

  const Simulation& simulation_;
  workload::RequestTable requests_;
  workload::Journal journal_;
  sim::EventQueue events_;
  gateway::Pipeline pipeline_;
  router::Dispatcher dispatcher_;
  std::vector<std::unique_ptr<instance::Instance>> fleet_;
  signals::Board board_;
  Time horizon_;
  Time now_{0};
};

}  // namespace

std::shared_ptr<const workload::Requests> offered_requests(const Simulation& simulation,
                                                           std::uint64_t seed) {
  const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
  if (!trace) {
    return workload::generate(std::get<workload::Synthetic>(simulation.workload), seed,
                              simulation.quantum_ns);
  }
  if (!trace->requests || trace->requests->size() == 0) {
    throw sim::ConfigError({{"workload", trace->file.empty() ? "an empty trace" : trace->file,
                             "holds no requests; give it some with --trace FILE, or in Python with "
                             "spillway.read_trace(FILE)"}});
  }
  return trace->requests;
}

Output run(const Simulation& simulation, std::uint64_t seed,
           const std::function<bool()>& interrupted) {
  sim::check(simulation);
  return Run(simulation, seed)(interrupted);
}

}  // namespace spillway::cluster
