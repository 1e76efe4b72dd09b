#include "cluster/session.h"

#include <array>
#include <limits>
#include <tuple>

#include "bindings/bindings.h"
#include "bindings/cluster.h"
#include "bindings/settings.h"
#include "bindings/value.h"
#include "cluster/run.h"

namespace spillway::bindings {

namespace {

using cluster::Simulation;

void add_counters(py::dict& entry, const cluster::SeenInstance& instance) {
  const instance::Counters& counters = instance.counters;
  entry["is_ready"] = instance.is_ready;
  entry["state"] = std::string(instance.state);
  entry["prefill_tokens"] = instance.signal.prefill_tokens;
  entry["entered"] = counters.entered;
  entry["refused"] = counters.refused;
  entry["completed"] = counters.completed;
  entry["cancelled"] = counters.cancelled;
  entry["preemptions"] = counters.preemptions;
  entry["steps"] = counters.steps;
  entry["tokens_emitted"] = counters.tokens_emitted;
  entry["kv_hits"] = instance.signal.prefix_hits;
  entry["kv_lookups"] = instance.signal.prefix_lookups;
}

// Of ints and floats, because that is cheaper than arrays of one value.
py::dict state_of(const cluster::Observation& seen, const std::vector<std::string>& tenants,
                  bool is_true) {
  const metrics::Sample& state = seen.state;
  py::dict result;
  result["time_s"] = sim::to_seconds(state.at);
  result["in_flight"] = state.in_flight;
  result["permits"] =
      std::isnan(state.permits) ? py::object(py::none()) : py::object(py::float_(state.permits));
  result["waiting"] = state.waiting;
  result["running"] = state.running;
  result["kv_utilization"] = state.kv_utilization;
  result["ready_instances"] = state.ready_instances;
  py::dict by_tenant;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    const metrics::TenantSample& counts = seen.tenants[i];
    py::dict entry;
    entry["submitted"] = counts.submitted;
    entry["dispatched"] = counts.dispatched;
    entry["shed"] = counts.shed;
    entry["completed"] = counts.completed;
    entry["queued"] = counts.queued;
    entry["emitted_tokens"] = counts.emitted_tokens;
    entry["good"] = counts.good;
    by_tenant[py::str(tenants[i])] = entry;
  }
  result["tenants"] = by_tenant;
  py::dict instances;
  for (const cluster::SeenInstance& instance : seen.instances) {
    py::dict entry;
    entry["waiting"] = instance.signal.waiting;
    entry["running"] = instance.signal.running;
    entry["kv_utilization"] = instance.signal.kv_utilization;
    entry["in_flight"] = instance.in_flight;
    instances[py::int_(instance.id.value)] = entry;
    if (is_true) {
      add_counters(entry, instance);
      continue;
    }
    entry["age_s"] =
        sim::is_set(instance.signal.measured)
            ? py::object(py::float_(sim::to_seconds(state.at - instance.signal.measured)))
            : py::object(py::none());
  }
  result["instances"] = instances;
  return result;
}

const std::string& reason_of(const cluster::SubmissionStatus& found) {
  static const std::vector<std::string> reasons = metrics::reason_names();
  return reasons.at(metrics::reason_index(found.reason));
}

double seconds_or_nan(sim::Time at) {
  return sim::is_set(at) ? sim::to_seconds(at) : std::numeric_limits<double>::quiet_NaN();
}

py::dict status_of(const cluster::SubmissionStatus& found) {
  py::dict result;
  result["state"] = std::string(found.state);
  result["has_ended"] = found.has_ended;
  result["reason"] = reason_of(found);
  result["row"] = found.row;
  result["attempts"] = found.attempts;
  result["instance"] = found.instance;
  result["output_tokens"] = found.output_tokens;
  result["arrival_s"] = found.arrival_s;
  result["ttft_s"] = found.ttft_s;
  result["tpot_s"] = found.tpot_s;
  result["e2e_s"] = found.e2e_s;
  result["queue_s"] = found.queue_s;
  result["cached_tokens"] = found.cached_tokens;
  result["preemptions"] = found.preemptions;
  result["scheduled_s"] = seconds_or_nan(found.scheduled);
  return result;
}

py::list activity_of(const cluster::Observation& seen) {
  py::list result;
  for (const cluster::SeenInstance& instance : seen.instances) {
    result.append(py::make_tuple(std::string(instance.state), instance.counters.steps,
                                 instance.counters.tokens_emitted));
  }
  return result;
}

py::list events_of(const std::vector<cluster::SubmissionEvent>& events) {
  static constexpr std::array kKinds{"dispatched", "prompt_computed", "first_token", "ended"};
  py::list result;
  for (const cluster::SubmissionEvent& event : events) {
    const cluster::SubmissionStatus& found = event.status;
    result.append(py::make_tuple(
        kKinds.at(static_cast<std::size_t>(event.kind)), event.number, sim::to_seconds(event.at),
        found.instance, std::string(found.state), reason_of(found), found.output_tokens,
        found.cached_tokens, found.preemptions, seconds_or_nan(found.scheduled)));
  }
  return result;
}

}  // namespace

void bind_session(py::module_& module) {
  py::class_<cluster::Session>(module, "Session", "See spillway.Session for the public form.")
      .def(py::init([](const Settings& simulation, std::uint64_t seed, bool open_ended,
                       bool reference, bool may_fail) {
             return std::make_unique<cluster::Session>(
                 simulation.as<Simulation>(), seed,
                 cluster::RunOptions{.is_checked = true,
                                     .reference = reference,
                                     .is_open = open_ended,
                                     .may_fail = may_fail,
                                     .interrupted = signal_raised});
           }),
           py::arg("simulation"), py::arg("seed"), py::arg("open_ended") = false,
           py::arg("reference") = false, py::arg("may_fail") = false)
      .def(
          "advance",
          [](cluster::Session& self, double until_s, std::uint64_t max_events) {
            const py::gil_scoped_release unlocked;
            self.advance(sim::from_seconds(until_s), max_events);
          },
          py::arg("until_s"), py::arg("max_events") = std::numeric_limits<std::uint64_t>::max(),
          "Handles all events up to an instant, or about this many.")
      .def("advance_by", &cluster::Session::advance_by, py::arg("requests"),
           py::call_guard<py::gil_scoped_release>(),
           "Handles all events up to the arrival of this many more requests.")
      .def(
          "submit",
          [](cluster::Session& self, const Settings& request, double at_s) {
            return self.submit(request.as<workload::Submission>(), sim::from_seconds(at_s));
          },
          py::arg("request"), py::arg("at_s"),
          "A request arrives at an instant after now. Returns its number; None: this takes a "
          "session of a simulation with that change, advanced to now.")
      .def(
          "status",
          [](const cluster::Session& self, std::size_t number) {
            return status_of(self.status(number));
          },
          py::arg("number"), "How far a submitted request has come.")
      .def_property_readonly("num_submitted", &cluster::Session::num_submitted)
      .def(
          "knows",
          [](const cluster::Session& self, const Settings& request) {
            return self.knows(request.as<workload::Submission>());
          },
          py::arg("request"), "Whether the run has the tenant and the class of a request.")
      .def(
          "cancel",
          [](cluster::Session& self, std::size_t number) -> std::optional<double> {
            const std::optional<sim::Time> at = self.cancel(number);
            if (!at) return std::nullopt;
            return sim::to_seconds(*at);
          },
          py::arg("number"),
          "The client of a submitted request withdraws it. Returns when; None: it has ended.")
      .def(
          "hand_off",
          [](cluster::Session& self,
             const Settings& to) -> std::optional<std::tuple<double, bool>> {
            const auto found = self.hand_off(to.as<workload::HandOff>());
            if (!found) return std::nullopt;
            return std::tuple(sim::to_seconds(found->at), found->is_taken);
          },
          py::arg("to"),
          "A request with `prefill_only` goes on at an instance. Returns when, and False: this "
          "takes a session of a simulation with that change, advanced to then; None: it has ended.")
      .def(
          "take_events",
          [](cluster::Session& self, bool forgets) { return events_of(self.take_events(forgets)); },
          py::arg("forgets"), "What has happened to submitted requests since the last call.")
      .def(
          "progress",
          [](cluster::Session& self, const std::vector<std::size_t>& numbers) {
            return self.progress(numbers);
          },
          py::arg("numbers"), "Output tokens of submitted requests up to now.")
      .def("close", &cluster::Session::close, "No further request is expected.")
      .def_property_readonly("next_due_s",
                             [](cluster::Session& self) -> std::optional<double> {
                               const sim::Time next = self.next_due();
                               if (next == sim::kForever) return std::nullopt;
                               return sim::to_seconds(next);
                             })
      .def(
          "set",
          [](cluster::Session& self, const py::dict& values, double at_s) {
            const sim::Value given = to_value(values);
            const py::gil_scoped_release unlocked;
            return self.set(*given.get_if<sim::Value::Map>(), sim::from_seconds(at_s));
          },
          py::arg("values"), py::arg("at_s"),
          "Changes settings at an instant after now. False: this takes a session of a simulation "
          "with that change, advanced to now.")
      .def(
          "fail",
          [](cluster::Session& self, const Settings& change, double at_s) {
            return self.fail(change.as<cluster::Change>().faults, sim::from_seconds(at_s));
          },
          py::arg("change"), py::arg("at_s"),
          "Instances fail as the change states, at an instant after now. False: as of `set`.")
      .def_property_readonly(
          "now_s", [](const cluster::Session& self) { return sim::to_seconds(self.now()); })
      .def_property_readonly("num_changes", &cluster::Session::num_changes)
      .def_property_readonly("has_pending_work", &cluster::Session::has_pending_work)
      .def(
          "observe",
          [](cluster::Session& self, bool is_true) {
            const auto seen = [&] {
              const py::gil_scoped_release unlocked;
              return self.observe(is_true);
            }();
            return state_of(seen, self.tenants(), is_true);
          },
          py::arg("is_true"), "The state as the gateway sees it, or the true one.")
      .def(
          "activity",
          [](cluster::Session& self) {
            const auto seen = [&] {
              const py::gil_scoped_release unlocked;
              return self.observe(true);
            }();
            return activity_of(seen);
          },
          "State, steps and output tokens so far of each instance.")
      .def("finish", [](cluster::Session& self) {
        cluster::Output output;
        {
          const py::gil_scoped_release unlocked;
          output = self.finish();
        }
        return to_dict(output);
      });
  module.def(
      "advance_all",
      [](const std::vector<std::tuple<cluster::Session*, py::dict, double, double>>& given,
         std::size_t threads) {
        std::vector<cluster::SessionStep> steps;
        for (const auto& [session, values, set_at_s, until_s] : given) {
          const sim::Value set = to_value(values);
          steps.push_back({session, *set.get_if<sim::Value::Map>(), sim::from_seconds(set_at_s),
                           sim::from_seconds(until_s)});
        }
        const py::gil_scoped_release unlocked;
        cluster::advance_all(steps, threads, signal_raised);
      },
      py::arg("steps"), py::arg("threads"),
      "Of each (session, values, at_s, until_s): changes settings and advances, on several "
      "threads. Those whose `set` is False do not advance.");
}

}  // namespace spillway::bindings
