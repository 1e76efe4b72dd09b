#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "bindings/bindings.h"
#include "bindings/cluster.h"
#include "bindings/settings.h"
#include "bindings/value.h"
#include "cluster/batch.h"
#include "cluster/causes.h"
#include "cluster/columns.h"
#include "cluster/profiles.h"
#include "cluster/randomness.h"
#include "cluster/run.h"

namespace spillway::bindings {

namespace {

using cluster::Simulation;

// A column as a read-only array that owns the underlying vector.
template <class T>
py::array column(std::vector<T>&& values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  const auto size = static_cast<py::ssize_t>(owned->size());
  const T* data = owned->data();
  const py::capsule owner(owned.release(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
  py::array_t<T> array(size, data, owner);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

py::array column_of(const cluster::RequestRecord& record,
                    const std::vector<cluster::ColumnKind>& kinds, const std::string& name) {
  for (const cluster::ColumnKind& kind : kinds) {
    if (kind.name != name) continue;
    const py::array derived = std::visit(
        [](auto&& values) -> py::array { return column(std::move(values)); }, kind.derive(record));
    return name == "admitted" ? py::array(derived.attr("view")("bool")) : derived;
  }
  throw py::key_error(name);
}

// The distinct gaps between tokens of all requests, ascending, and how often each occurs.
py::array token_gaps_of(const cluster::RequestRecord& record, const std::string& name) {
  std::vector<std::size_t> groups(record.requests.num_groups());
  std::iota(groups.begin(), groups.end(), std::size_t{0});
  workload::GapIndex::Room room;
  const numerics::ValueCounts gaps = record.states.token_gaps.exact(groups, room);
  if (name == "gap_s") {
    std::vector<double> values;
    values.reserve(gaps.size());
    for (const auto& [ns, count] : gaps) values.push_back(sim::to_seconds(sim::Time{ns}));
    return column(std::move(values));
  }
  if (name == "count") {
    std::vector<std::int64_t> values;
    values.reserve(gaps.size());
    for (const auto& [ns, count] : gaps) values.push_back(count);
    return column(std::move(values));
  }
  throw py::key_error(name);
}

py::dict activity_of(const cluster::Activity& seen) {
  py::dict result;
  result["not_completed"] = seen.not_completed;
  result["peak_in_flight"] = seen.peak_in_flight;
  result["limit_held"] = seen.limit_held;
  result["tenant_limit_stopped_others"] = seen.tenant_limit_stopped_others;
  result["prefix_index_forgot"] = seen.prefix_index_forgot;
  result["busy_threshold_exceeded"] = seen.busy_threshold_exceeded;
  result["peak_kv_utilization"] = seen.peak_kv_utilization;
  return result;
}

py::list instances_of(const std::vector<cluster::InstanceReport>& reports) {
  // Made once: for a large fleet the keys would take longer than the values.
  const py::str completed("completed"), refused("refused"), cancelled("cancelled"),
      preemptions("preemptions"), tokens_recomputed("tokens_recomputed"),
      tokens_wasted("tokens_wasted"), steps("steps"), mean_waiting("mean_waiting"),
      mean_waiting_at_step("mean_waiting_at_step"), kv_hits("kv_hits"), kv_misses("kv_misses"),
      kv_lookups("kv_lookups"), stepping("stepping");
  std::vector<py::str> steppings;
  for (const std::string_view name : instance::kSteppingNames) {
    steppings.emplace_back(std::string(name));
  }
  py::list result;
  for (const auto& report : reports) {
    py::dict entry;
    entry[completed] = report.completed;
    entry[refused] = report.refused;
    entry[cancelled] = report.cancelled;
    entry[preemptions] = report.preemptions;
    entry[tokens_recomputed] = report.tokens_recomputed;
    entry[tokens_wasted] = report.tokens_wasted;
    entry[steps] = report.steps;
    entry[mean_waiting] = report.mean_waiting;
    entry[mean_waiting_at_step] = report.mean_waiting_at_step;
    entry[kv_hits] = report.kv_hits;
    entry[kv_misses] = report.kv_misses;
    entry[kv_lookups] = report.kv_lookups;
    entry[stepping] = steppings[static_cast<std::size_t>(report.stepping)];
    result.append(entry);
  }
  return result;
}

py::list ranks_of(const std::vector<cluster::RankReport>& reports) {
  py::list result;
  for (const auto& report : reports) {
    py::dict entry;
    entry["instance"] = report.instance;
    entry["rank"] = report.rank;
    entry["active_decode_blocks"] = report.active_decode_blocks;
    entry["active_prefill_tokens"] = report.active_prefill_tokens;
    entry["worker_is_busy"] = report.worker_is_busy;
    result.append(entry);
  }
  return result;
}

py::list ingresses_of(const std::vector<cluster::IngressReport>& reports) {
  py::list result;
  for (const auto& [number, counts] : reports) {
    py::dict entry;
    entry["instance"] = number;
    entry["entered_at_once"] = counts.entered_at_once;
    entry["entered_from_queue"] = counts.entered_from_queue;
    entry["refused"] = counts.refused;
    entry["unfinished"] = counts.unfinished;
    entry["awaiting_response"] = counts.awaiting_response;
    entry["queued"] = counts.queued;
    entry["most_unfinished"] = counts.most_unfinished;
    entry["most_queued"] = counts.most_queued;
    result.append(entry);
  }
  return result;
}

py::list faults_of(const std::vector<cluster::FaultReport>& reports, bool migrates) {
  const auto seconds = [](sim::Time at) -> std::optional<double> {
    if (!sim::is_set(at)) return std::nullopt;
    return sim::to_seconds(at);
  };
  py::list result;
  for (const auto& report : reports) {
    py::dict entry;
    entry["kind"] = std::string(report.kind);
    if (report.gateway < 0) {
      entry["instance"] = report.instance;
    } else {
      entry["instance"] = py::none();
      entry["gateway"] = report.gateway;
    }
    entry["began_s"] = seconds(report.began);
    entry["detected_s"] = seconds(report.detected);
    entry["ended_s"] = seconds(report.ended);
    entry["lost_requests"] = report.loss.requests;
    entry["lost_tokens"] = report.loss.tokens;
    entry["lost_time_s"] = sim::to_seconds(report.loss.time);
    if (migrates) entry["migrated_requests"] = report.loss.migrated;
    if (report.kind == fleet::KvLoss::kind) entry["preempted_requests"] = report.loss.preempted;
    result.append(entry);
  }
  return result;
}

template <class T, class Entry, class Get>
py::array array_of(const std::vector<Entry>& entries, const Get& get) {
  std::vector<T> values;
  values.reserve(entries.size());
  for (const Entry& entry : entries) values.push_back(static_cast<T>(get(entry)));
  return column(std::move(values));
}

// One row per decision; the candidates' columns have one column each per candidate.
py::dict decisions_of(const router::DecisionLog& log) {
  py::dict result;
  if (!log.is_kept()) return result;
  const auto& decisions = log.decisions();
  using router::Candidate;
  using router::Decision;
  result["row"] = array_of<std::uint32_t>(decisions, [](const Decision& d) { return d.row; });
  result["time_s"] =
      array_of<double>(decisions, [](const Decision& d) { return sim::to_seconds(d.at); });
  result["instance"] =
      array_of<std::int32_t>(decisions, [](const Decision& d) { return d.chosen.instance.value; });
  result["rank"] =
      array_of<std::int32_t>(decisions, [](const Decision& d) { return d.chosen.rank; });
  result["score"] = array_of<double>(decisions, [](const Decision& d) { return d.score; });
  result["regret"] = array_of<double>(decisions, [](const Decision& d) { return d.regret; });
  if (log.has_pools()) {
    const py::array codes =
        array_of<std::uint8_t>(decisions, [](const Decision& d) { return d.is_prefill; });
    result["is_prefill"] = codes.attr("view")("bool");
  }
  const auto add = [&]<class T>(const char* name, T, const auto& get) {
    const auto rows = static_cast<py::ssize_t>(decisions.size());
    const auto each = static_cast<py::ssize_t>(log.candidates_per_decision());
    result[name] = array_of<T>(log.candidates(), get).reshape({rows, each});
  };
  std::size_t next = 0;
  add("candidate_instance", std::int32_t{}, [](const Candidate& c) { return c.instance; });
  add("candidate_rank", std::int32_t{}, [](const Candidate& c) { return c.rank; });
  add("candidate_score", double{}, [](const Candidate& c) { return c.score; });
  add("candidate_waiting", std::int32_t{}, [](const Candidate& c) { return c.waiting; });
  add("candidate_running", std::int32_t{}, [](const Candidate& c) { return c.running; });
  add("candidate_in_flight", std::int32_t{}, [](const Candidate& c) { return c.in_flight; });
  add("candidate_kv_utilization", double{}, [](const Candidate& c) { return c.kv_utilization; });
  add("candidate_age_s", double{}, [&](const Candidate& c) {
    const sim::Time at = decisions[next++ / log.candidates_per_decision()].at;
    return sim::is_set(c.measured) ? sim::to_seconds(at - c.measured)
                                   : std::numeric_limits<double>::quiet_NaN();
  });
  return result;
}

// One row per sample; columns per tenant have the shape (samples, tenants).
py::list fitted_states_of(const std::vector<cluster::FittedStatesReport>& reports) {
  py::list result;
  for (const auto& report : reports) {
    py::dict entry;
    entry["group"] = report.group;
    entry["states"] = report.states;
    entry["outside"] = report.outside;
    entry["most_running_requests"] = report.most_running_requests;
    entry["most_kv_tokens"] = report.most_kv_tokens;
    result.append(entry);
  }
  return result;
}

// Of shape (samples, tenants); there is a sample.
py::array by_tenant(const metrics::Timeline& timeline,
                    std::int64_t metrics::TenantSample::* member) {
  const auto rows = static_cast<py::ssize_t>(timeline.samples.size());
  const auto each = static_cast<py::ssize_t>(timeline.tenants.size()) / rows;
  return array_of<std::int64_t>(timeline.tenants,
                                [&](const metrics::TenantSample& s) { return s.*member; })
      .reshape({rows, each});
}

void add_pools(const std::vector<metrics::PoolsSample>& samples, py::dict& result) {
  using metrics::PoolSample;
  using metrics::PoolsSample;
  const auto add_pool = [&](const std::string& pool, PoolSample PoolsSample::* member) {
    const auto add = [&]<class T>(const char* name, T PoolSample::* value) {
      result[py::str(pool + name)] =
          array_of<T>(samples, [&](const PoolsSample& s) { return s.*member.*value; });
    };
    add("_in_flight", &PoolSample::in_flight);
    add("_waiting", &PoolSample::waiting);
    add("_running", &PoolSample::running);
    add("_kv_utilization", &PoolSample::kv_utilization);
    add("_ready_instances", &PoolSample::ready_instances);
  };
  add_pool("prefill", &PoolsSample::prefill);
  add_pool("decode", &PoolsSample::decode);
  result["transfers"] =
      array_of<std::int64_t>(samples, [](const PoolsSample& s) { return s.transfers; });
}

py::dict timeline_of(const metrics::Timeline& timeline) {
  using metrics::Sample;
  using metrics::TenantSample;
  py::dict result;
  if (timeline.samples.empty()) return result;
  const auto& samples = timeline.samples;
  result["time_s"] =
      array_of<double>(samples, [](const Sample& s) { return sim::to_seconds(s.at); });
  const auto add = [&]<class T>(const char* name, T Sample::* member) {
    result[name] = array_of<T>(samples, [&](const Sample& s) { return s.*member; });
  };
  add("in_flight", &Sample::in_flight);
  add("permits", &Sample::permits);
  add("waiting", &Sample::waiting);
  add("running", &Sample::running);
  add("kv_utilization", &Sample::kv_utilization);
  add("ready_instances", &Sample::ready_instances);
  if (!timeline.pools.empty()) add_pools(timeline.pools, result);
  const auto add_by_tenant = [&](const char* name, std::int64_t TenantSample::* member) {
    result[name] = by_tenant(timeline, member);
  };
  add_by_tenant("submitted", &TenantSample::submitted);
  add_by_tenant("dispatched", &TenantSample::dispatched);
  add_by_tenant("shed", &TenantSample::shed);
  add_by_tenant("completed", &TenantSample::completed);
  add_by_tenant("queued", &TenantSample::queued);
  add_by_tenant("emitted_tokens", &TenantSample::emitted_tokens);
  return result;
}

py::dict control_of(const std::vector<gateway::ControlRecord>& log, sim::Time interval) {
  using gateway::ControlRecord;
  py::dict result;
  result["time_s"] =
      array_of<double>(log, [](const ControlRecord& c) { return sim::to_seconds(c.at); });
  result["replica"] =
      array_of<std::uint16_t>(log, [](const ControlRecord& c) { return c.replica; });
  result["action"] = array_of<std::uint8_t>(log, [](const ControlRecord& c) { return c.action; });
  result["value"] = array_of<double>(log, [](const ControlRecord& c) { return c.value; });
  result["samples"] = array_of<std::int64_t>(log, [](const ControlRecord& c) { return c.samples; });
  result["setting"] = array_of<double>(log, [](const ControlRecord& c) { return c.setting; });
  result["permits"] = array_of<double>(log, [](const ControlRecord& c) { return c.permits; });
  result["in_flight"] =
      array_of<std::int64_t>(log, [](const ControlRecord& c) { return c.in_flight; });
  if (std::ranges::any_of(log, [](const ControlRecord& c) { return c.repeats > 0; })) {
    result["time_ns"] = array_of<std::int64_t>(log, [](const ControlRecord& c) { return c.at.ns; });
    result["repeats"] =
        array_of<std::int64_t>(log, [](const ControlRecord& c) { return c.repeats; });
    result["interval_ns"] =
        array_of<std::int64_t>(log, [=](const ControlRecord&) { return interval.ns; });
  }
  return result;
}

}  // namespace

bool signal_raised() {
  if (cluster::is_stopped()) return true;
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

py::dict to_dict(const cluster::Output& output) {
  py::dict result;
  result["record"] = std::const_pointer_cast<cluster::RequestRecord>(output.record);
  result["tenants"] = output.tenants;
  result["slo_classes"] = output.slo_classes;
  result["ledger"] = to_python(output.ledger.to_value());
  result["summary"] = to_python(output.summary->overall());
  result["groups"] = std::const_pointer_cast<metrics::Summary>(output.summary);
  result["activity"] = activity_of(output.activity);
  result["instances"] = instances_of(output.instances);
  result["ranks"] = ranks_of(output.ranks);
  result["ingresses"] = ingresses_of(output.ingresses);
  if (!output.faults.empty())
    result["faults"] = faults_of(output.faults, output.ledger.migrations.has_value());
  result["fitted_states"] = fitted_states_of(output.fitted_states);
  result["decisions"] = decisions_of(output.decisions);
  py::list details;
  for (const auto& [row, text] : output.refusal_details) details.append(py::make_tuple(row, text));
  result["refusal_details"] = details;
  result["timeline"] = timeline_of(output.timeline);
  result["control"] = control_of(output.control, output.control_interval);
  result["steps"] = output.steps;
  result["events"] = output.events;
  result["end_s"] = output.end_s;
  return result;
}

namespace {

using SharedRequests = std::shared_ptr<workload::Requests>;

py::dict run(const Settings& simulation, std::uint64_t seed, bool reference,
             const SharedRequests& requests) {
  cluster::Output output;
  {
    const py::gil_scoped_release unlocked;
    output = cluster::run(simulation.as<Simulation>(), seed,
                          {.requests = requests,
                           .is_checked = true,
                           .reference = reference,
                           .interrupted = signal_raised});
  }
  return to_dict(output);
}

py::list requests_of(const std::vector<sim::RequestId>& ids) {
  py::list rows;
  for (const sim::RequestId id : ids) rows.append(id.value);
  return rows;
}

py::list tokens_of(const std::vector<std::pair<sim::RequestId, std::int64_t>>& parts) {
  py::list rows;
  for (const auto& [id, tokens] : parts) rows.append(py::make_tuple(id.value, tokens));
  return rows;
}

py::list steps_of(const instance::StepLog& log) {
  py::list steps;
  for (const instance::ScheduledStep& step : log) {
    py::dict entry;
    entry["planned_ns"] = step.planned.ns;
    if (sim::is_set(step.start)) {
      entry["start_ns"] = step.start.ns;
      entry["end_ns"] = step.end.ns;
    }
    entry["scheduled"] = tokens_of(step.scheduled);
    entry["admitted"] = tokens_of(step.admitted);
    entry["readmitted"] = tokens_of(step.readmitted);
    entry["preempted"] = requests_of(step.preempted);
    entry["drafts"] = tokens_of(step.drafts);
    entry["free_blocks"] = step.free_blocks;
    entry["waiting"] = step.waiting;
    entry["running"] = requests_of(step.running);
    entry["finished"] = requests_of(step.finished);
    steps.append(entry);
  }
  return steps;
}

// The output of a run without shortcuts, and the steps of each engine.
py::tuple log_steps(const Settings& simulation, std::uint64_t seed) {
  cluster::Output output;
  std::vector<instance::StepLog> logs;
  {
    const py::gil_scoped_release unlocked;
    output = cluster::run(
        simulation.as<Simulation>(), seed,
        {.is_checked = true, .reference = true, .step_logs = &logs, .interrupted = signal_raised});
  }
  py::list engines;
  for (const instance::StepLog& log : logs) engines.append(steps_of(log));
  return py::make_tuple(to_dict(output), engines);
}

// The output of a run without shortcuts, the names of causes, and nanoseconds by cause: of each
// request, and of each engine in prefill, decoding and lockstep.
py::tuple time_by_cause(const Settings& simulation, std::uint64_t seed) {
  cluster::Output output;
  cluster::TimeByCause found;
  {
    const py::gil_scoped_release unlocked;
    std::vector<instance::StepLog> logs;
    const auto& settings = simulation.as<Simulation>();
    output = cluster::run(
        settings, seed,
        {.is_checked = true, .reference = true, .step_logs = &logs, .interrupted = signal_raised});
    found = cluster::time_by_cause(settings, output, logs);
  }
  py::tuple names(cluster::kCauses.size());
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = cluster::kCauses.at(i);
  std::vector<std::int64_t> requests;
  requests.reserve(found.requests.size() * cluster::kCauses.size());
  for (const auto& times : found.requests) {
    requests.insert(requests.end(), times.begin(), times.end());
  }
  std::vector<std::int64_t> engines;
  for (const auto& times : found.engines) {
    engines.insert(engines.end(), {times.prefill, times.decode, times.lockstep});
  }
  const auto width = static_cast<py::ssize_t>(cluster::kCauses.size());
  return py::make_tuple(to_dict(output), names,
                        column(std::move(requests)).attr("reshape")(-1, width),
                        column(std::move(engines)).attr("reshape")(-1, 3));
}

// The outputs in order, None for runs that an interruption skipped. An exception of `progress` ends
// the batch and passes through.
py::list run_batch(const std::vector<Settings>& settings, const std::vector<std::uint64_t>& seeds,
                   std::size_t threads, bool reference, bool keep_requests,
                   const py::object& progress) {
  std::vector<Simulation> simulations;
  for (const Settings& simulation : settings) simulations.push_back(simulation.as<Simulation>());
  bool was_interrupted = false;
  cluster::BatchOptions options{.threads = threads,
                                .is_checked = true,
                                .reference = reference,
                                .keep_requests = keep_requests,
                                .interrupted = [&] {
                                  was_interrupted = was_interrupted || signal_raised();
                                  return was_interrupted;
                                }};
  if (!progress.is_none()) {
    options.progress = [&](std::size_t done) {
      const py::gil_scoped_acquire gil;
      if (!was_interrupted) progress(done);
    };
  }
  std::vector<std::shared_ptr<const cluster::Output>> outputs;
  {
    const py::gil_scoped_release unlocked;
    outputs = cluster::run_batch(simulations, seeds, options);
  }
  if (was_interrupted && PyErr_Occurred() != nullptr) {
    // After Ctrl-C the caller sees which outputs are missing. Where none is, and other exceptions
    // of a handler, pass through.
    const bool is_whole = std::find(outputs.begin(), outputs.end(), nullptr) == outputs.end();
    if (is_whole || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0) {
      throw py::error_already_set();
    }
    PyErr_Clear();
  }
  py::list result;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) {
      result.append(py::none());
    } else if (i > 0 && outputs[i] == outputs[i - 1]) {
      result.append(result[i - 1]);
    } else {
      result.append(to_dict(*outputs[i]));
    }
  }
  return result;
}

py::tuple column_names(const std::vector<cluster::ColumnKind>& kinds) {
  py::list names;
  for (const auto& kind : kinds) names.append(py::str(std::string(kind.name)));
  return py::tuple(names);
}

}  // namespace

void bind_cluster(py::module_& module) {
  using metrics::Summary;
  py::class_<Summary, std::shared_ptr<Summary>>(module, "GroupFigures",
                                                "The figures of the classes and tenants of a run.")
      .def(
          "by_class", [](const Summary& self) { return to_python(self.by_class()); },
          "The figures of each class with requests.")
      .def(
          "by_tenant", [](const Summary& self) { return to_python(self.by_tenant()); },
          "The figures of each tenant.");
  py::class_<cluster::RequestRecord, std::shared_ptr<cluster::RequestRecord>>(
      module, "RequestRecord", "The requests of a run and their outcomes.")
      .def(
          "column",
          [](const cluster::RequestRecord& self, const std::string& name) {
            return column_of(self, cluster::columns(), name);
          },
          py::arg("name"), "One value per offered request, read-only.")
      .def(
          "further_column",
          [](const cluster::RequestRecord& self, const std::string& name) {
            return column_of(self, cluster::further_columns(self), name);
          },
          py::arg("name"), "The same, of the columns that this run has besides.")
      .def_property_readonly(
          "further_columns",
          [](const cluster::RequestRecord& self) {
            return column_names(cluster::further_columns(self));
          },
          "Their names: of runs with a prefill and a decode pool, whose requests migrate, or whose "
          "clients hedge.")
      .def(
          "offered_column",
          [](const cluster::RequestRecord& self, const std::string& name) {
            return column_of(self, cluster::offered_columns(), name);
          },
          py::arg("name"), "One value per offered request, of a column of the workload, read-only.")
      .def("token_gaps", &token_gaps_of, py::arg("name"),
           "gap_s: the distinct gaps between tokens, ascending; count: of each.")
      .def_property_readonly(
          "attributes",
          [](const cluster::RequestRecord& self) {
            std::vector<std::pair<std::string, std::vector<std::string>>> found;
            for (const workload::Attribute& attribute : self.requests.attributes()) {
              found.emplace_back(attribute.name, attribute.values);
            }
            return found;
          },
          "The further columns of the trace, each with its values.")
      .def(
          "attribute_codes",
          [](const cluster::RequestRecord& self, std::size_t i) {
            py::array_t<std::int64_t> codes(static_cast<py::ssize_t>(self.offered));
            for (std::size_t row = 0; row < self.offered; ++row) {
              const std::uint32_t code = self.requests.attribute(sim::RequestId{row}, i);
              codes.mutable_data()[row] =
                  code == workload::Attribute::kNone ? -1 : std::int64_t{code};
            }
            return codes;
          },
          py::arg("i"), "Of the i-th of them, the position of each request's value; -1: none.")
      .def_property_readonly(
          "models",
          [](const cluster::RequestRecord& self) {
            const auto all = self.requests.models();
            return std::vector<std::string>(all.begin(), all.end());
          },
          "The models that requests may name; the first one, empty, is none.")
      .def_property_readonly("request_id", [](const cluster::RequestRecord& self) {
        return self.requests.source()->request_id;
      });
  py::class_<workload::Requests, SharedRequests>(
      module, "OfferedRequests", "The requests that runs of one workload and seed share.")
      .def("__len__", &workload::Requests::size);
  module.def(
      "offered_requests",
      [](const Settings& settings, std::uint64_t seed) {
        const auto& simulation = settings.as<Simulation>();
        cluster::check_has_requests(simulation);
        return std::const_pointer_cast<workload::Requests>(
            cluster::offered_requests(simulation, seed, signal_raised));
      },
      py::arg("simulation"), py::arg("seed"), py::call_guard<py::gil_scoped_release>(),
      "The requests that a simulation offers under a seed; None in streaming mode.");
  module.def(
      "reads_output_lengths",
      [](const Settings& settings) {
        return cluster::reads_output_lengths(settings.as<Simulation>());
      },
      py::arg("simulation"), "Whether any policy may read predicted output lengths.");
  module.def("log_steps", &log_steps, py::arg("simulation"), py::arg("seed"));
  module.def("time_by_cause", &time_by_cause, py::arg("simulation"), py::arg("seed"));
  module.def("run", &run, py::arg("simulation"), py::arg("seed"), py::arg("reference") = false,
             py::arg("requests") = py::none(),
             "Runs one experiment under one seed; see spillway.simulate for the public form.");
  bind_session(module);
  module.def("run_batch", &run_batch, py::kw_only(), py::arg("simulations"), py::arg("seeds"),
             py::arg("threads"), py::arg("reference"), py::arg("keep_requests"),
             py::arg("progress"),
             "Runs every simulation under every seed; see spillway.run_many for the public form.");
  module.def(
      "random_streams",
      [](const Settings& simulation) {
        py::list names;
        for (const sim::Stream stream : cluster::random_streams(simulation.as<Simulation>())) {
          names.append(
              py::str(std::string(sim::kStreamNames.at(static_cast<std::size_t>(stream) - 1))));
        }
        return py::tuple(names);
      },
      py::arg("simulation"),
      "The random streams that can change a run; see spillway.config.randomness for the public "
      "form.");
  module.attr("columns") = column_names(cluster::columns());
  module.attr("offered_columns") = column_names(cluster::offered_columns());
  py::list outcomes;
  for (const auto name : workload::kOutcomeNames) outcomes.append(py::str(std::string(name)));
  module.attr("outcomes") = py::tuple(outcomes);
  py::list copies;
  for (const auto name : sim::EnumNames<workload::Copies>::names) {
    copies.append(py::str(std::string(name)));
  }
  module.attr("copies") = py::tuple(copies);
  py::list actions;
  for (const auto name : sim::EnumNames<gateway::ControlAction>::names) {
    actions.append(py::str(std::string(name)));
  }
  module.attr("control_actions") = py::tuple(actions);
  py::list settings;
  for (const auto& setting : cluster::profile_settings()) {
    py::dict values;
    values["vllm"] = std::string(setting.vllm);
    values["blis_0_6"] = std::string(setting.blis_0_6);
    settings.append(py::make_tuple(std::string(setting.path), values, std::string(setting.why)));
  }
  module.attr("profile_settings") = py::tuple(settings);
}

}  // namespace spillway::bindings
